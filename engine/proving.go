package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/units"
)

// Prove starts sandboxes as a request says and tries to cross each wall from
// inside, one after the other, each in a sandbox of its own; each is told what came
// of it as soon as that is known. program is how to run prove.Run inside: the path of
// a program that the sandbox sees too, with its first arguments, to which a probe's
// name and arguments are added. A limit that the request has none of is tried at a
// small value, so that all are tried. A request for the host's network has no walls
// there, and nothing of it is tried.
//
// Cost: some ten seconds. Errors: ErrInterrupted, and those of listening on
// loopback; a sandbox that cannot be started is a wall that does not hold.
func (e *Engine) Prove(ctx context.Context, req Request, program []string, each func(prove.Report)) error {
	host, err := listenForProbes()
	if err != nil {
		return err
	}
	defer host.close()
	p := prover{e: e, req: req, program: program}
	p.req.Policy.Limits = catalog.Limits{}
	for _, trial := range append(p.limitTrials(req.Policy.Limits), p.wallTrials(host)...) {
		if ctx.Err() != nil {
			return &snapshot.Error{Op: "proving", Kind: snapshot.ErrInterrupted, Err: ctx.Err()}
		}
		each(p.try(ctx, trial))
	}
	return nil
}

type prover struct {
	e       *Engine
	req     Request
	program []string
}

// A trial is one probe, in a sandbox with these limits and no others.
type trial struct {
	probe  string
	args   []string
	limits catalog.Limits
	// hidden: its arguments are what the sandbox hides.
	hidden bool
}

// limitTrials are those of limits: of l, and small ones where l has none.
func (p *prover) limitTrials(l catalog.Limits) []trial {
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	orElse := func(n *int64, least int64) {
		if *n == 0 {
			*n = least
		}
	}
	orElse(&l.Memory, 64<<20)
	orElse(&l.PIDs, 50)
	orElse(&l.Files, 64)
	if l.CPUs == 0 {
		l.CPUs = 0.5
	}
	if l.CPUTime == 0 {
		l.CPUTime = time.Second
	}
	if l.Time == 0 {
		l.Time = time.Second
	}
	all := []trial{
		{probe: "memory", args: []string{count(l.Memory)}, limits: catalog.Limits{Memory: l.Memory}},
		{probe: "pids", args: []string{count(l.PIDs)}, limits: catalog.Limits{PIDs: l.PIDs}},
		{probe: "files", args: []string{count(l.Files)}, limits: catalog.Limits{Files: l.Files}},
		{probe: "cpus", args: []string{units.FormatCPUs(l.CPUs)}, limits: catalog.Limits{CPUs: l.CPUs}},
		{probe: "cpu-time", args: []string{l.CPUTime.String()}, limits: catalog.Limits{CPUTime: l.CPUTime}},
		{probe: "time", args: []string{(l.Time + leave).String()}, limits: catalog.Limits{Time: l.Time}},
	}
	if l.Disk != 0 {
		all = append(all, trial{probe: "disk", args: []string{count(l.Disk), p.req.Workspace}, limits: catalog.Limits{Disk: l.Disk}})
	}
	if l.WriteRate != 0 {
		all = append(all, trial{probe: "write-rate", args: []string{count(l.WriteRate), p.req.Workspace}, limits: catalog.Limits{WriteRate: l.WriteRate}})
	}
	return all
}

// wallTrials are those of everything else.
func (p *prover) wallTrials(host *probed) []trial {
	self := strconv.Itoa(os.Getpid())
	start, _ := prove.StartOf(os.Getpid()) // without it the probes say that they could not try
	args := map[string][]string{
		"state":       {p.e.cat.Dir()},
		"see-process": {self, start}, "signal-process": {self, start}, "trace-process": {self, start},
		"name": {"snapfs-prove.example:443"}, "ipv4": {"192.0.2.1:443"}, "ipv6": {"[2001:db8::1]:443"},
		"resolver": {"192.0.2.53:53", "snapfs-prove.example"}, "loopback": {host.port}, "abstract-socket": {host.name},
	}
	if host.outer != "" {
		args["ipv4"] = []string{host.outer}
	}
	none := map[string]bool{"read-only": true, "tls-name": true} // about what a request does not say
	for _, t := range p.limitTrials(catalog.Limits{Disk: 1, WriteRate: 1}) {
		none[t.probe] = true // limits are tried by themselves
	}
	if p.req.Policy.Network == "host" {
		for _, name := range []string{"name", "ipv4", "ipv6", "resolver", "metadata", "loopback"} {
			none[name] = true
		}
	}
	var all []trial
	for _, probe := range prove.List() {
		if !none[probe.Name] {
			all = append(all, trial{probe: probe.Name, args: args[probe.Name], hidden: probe.Name == "masked"})
		}
	}
	return all
}

// try runs one probe.
func (p *prover) try(ctx context.Context, t trial) prove.Report {
	broken := func(err error) prove.Report {
		return prove.Report{Probe: t.probe, Tried: strings.Join(append([]string{t.probe}, t.args...), " "), Happened: err.Error()}
	}
	if t.hidden {
		var err error
		if t.args, err = p.hidden(ctx); err != nil {
			return broken(err)
		}
		if len(t.args) == 0 {
			return prove.Report{Probe: t.probe, Tried: "read what is hidden", Happened: "there is nothing to hide on this machine", Held: true}
		}
	}
	out, in, err := os.Pipe()
	if err != nil {
		return broken(err)
	}
	defer out.Close()
	req := p.req
	req.Policy.Limits = t.limits
	command := Command{Args: append(append(append([]string{}, p.program...), t.probe), t.args...), Env: Environ(os.Environ(), nil), Dir: req.Workspace, Stdout: in}
	s, err := p.e.Run(ctx, req, command)
	in.Close()
	if err != nil {
		return broken(err)
	}
	said := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(out, 1<<20)) // what is cut short is no report
		said <- text
	}()
	st, err := s.Wait(ctx)
	err = errors.Join(err, s.Discard(context.WithoutCancel(ctx)))
	if err != nil {
		return broken(err)
	}
	return prove.Read(t.probe, <-said, st.Signal != 0)
}

// hidden is what a sandbox of the request hides, of what there is.
func (p *prover) hidden(ctx context.Context) ([]string, error) {
	s, err := p.e.Run(ctx, p.req, Command{Args: []string{"/bin/true"}, Env: []string{}, Dir: p.req.Workspace})
	if err != nil {
		return nil, err
	}
	hidden := s.host.hidden
	_, err = s.Wait(ctx)
	err = errors.Join(err, s.Discard(context.WithoutCancel(ctx)))
	var there []string
	for _, path := range hidden {
		if _, serr := os.Lstat(path); serr == nil && len(there) < 500 {
			there = append(there, path)
		}
	}
	return there, err
}

// probed is what the probes find on the host where no wall is: services of its own.
type probed struct {
	port, name, outer string
	open              []net.Listener
}

func (h *probed) close() {
	for _, l := range h.open {
		l.Close() //nolint:errcheck // nobody is connected
	}
}

func listenForProbes() (*probed, error) {
	h := &probed{name: "snapfs-prove-" + catalog.NewID()}
	listen := func(kind, addr string) (net.Listener, error) {
		l, err := net.Listen(kind, addr)
		if err != nil {
			return nil, &snapshot.Error{Op: "listening for probes", Path: addr, Kind: snapshot.KindOf(err), Err: err}
		}
		h.open = append(h.open, l)
		return l, nil
	}
	l, err := listen("tcp", "127.0.0.1:0")
	if err == nil {
		_, h.port, err = net.SplitHostPort(l.Addr().String())
	}
	if err == nil {
		_, err = listen("unix", "@"+h.name)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	addrs, _ := net.InterfaceAddrs() // none: an address that nobody has is tried
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || !ip.IP.IsGlobalUnicast() || ip.IP.To4() == nil {
			continue
		}
		if l, err := listen("tcp", net.JoinHostPort(ip.IP.String(), "0")); err == nil {
			h.outer = l.Addr().String()
			break
		}
	}
	return h, nil
}

package selftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// Prove tests the isolation of sandboxes made as req says: programs inside try to cross each boundary. Each
// limit is tested in a separate sandbox, all else in one. It calls each with every report as soon as it is
// known. program is the path of a program that the sandbox sees too, with its first arguments, that runs
// prove.Run. only lists the probes to run; empty means all.
//
// A limit that the request lacks is tested at a small value, unless the request names a profile. A request
// for the host's network has no network tests. Cost: about seven seconds, nearly all for limits. Errors:
// ErrInterrupted, errors of listening on loopback, and ErrNotFound for an unknown name in only. If a sandbox
// does not start, the report says that its test could not be made.
func (ts *Tester) Prove(ctx context.Context, req hostfs.Request, program, only []string, each func(prove.Report)) (err error) {
	host, err := listenForProbes()
	if err != nil {
		return err
	}
	defer host.close()
	p := prover{e: ts, req: req, program: program}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	p.req.Policy.Limits = catalog.Limits{}
	if wanted(only, replacedSecret) {
		p.planted = plantFile()
	}
	if use := req.Policy.Profile; use != nil && !use.Found {
		p.own = true
	}
	walls := p.wallTrials(host)
	if wanted(only, "other-sandbox") {
		other, err := p.otherTrial(ctx)
		if err != nil {
			return err
		}
		walls = append(walls, other...)
	}
	if wanted(only, slices.Concat(serverProbes, requestProbes)...) {
		walls = append(walls, p.serverTrials(ctx, host)...)
		walls = append(walls, p.requestTrials(host)...)
	}
	trials, err := chosen(slices.Concat(p.limitTrials(req.Policy.Limits), walls, p.ruleTrials()), only)
	if err != nil {
		return err
	}
	for _, trial := range trials {
		if ctx.Err() != nil {
			return &errs.Error{Op: "proving", Kind: errs.ErrInterrupted, Err: ctx.Err()}
		}
		each(p.try(ctx, trial))
	}
	return nil
}

// wanted reports whether the user asked for one of the self-test's probes called names. only lists the probes
// that the user asked for; empty means all.
func wanted(only []string, names ...string) bool {
	return len(only) == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(only, n) })
}

// chosen returns those of the self-test's attempts all whose probe the user named in only, or all if only is
// empty. A name without a test is ErrNotFound.
func chosen(all []trial, only []string) ([]trial, error) {
	for _, name := range only {
		if !slices.ContainsFunc(all, func(t trial) bool { return t.probe == name }) {
			return nil, &errs.Error{Op: "proving", Path: name, Kind: errs.ErrNotFound, Err: errors.New("such a wall is not tried here"), Hints: []string{"snapfs doctor --prove"}}
		}
	}
	return slices.DeleteFunc(all, func(t trial) bool { return len(only) > 0 && !slices.Contains(only, t.probe) }), nil
}

type prover struct {
	e       *Tester
	req     hostfs.Request
	program []string

	// own restricts the trials of limits to those that the request sets.
	own   bool
	walls *engine.Session // the sandbox in which the walls are tried, once started
	other *engine.Session // a sandbox that must not be visible from walls
	// planted is a file of the host at a place that walls does not see, made before walls starts; "" if there is none.
	planted string
}

// A trial is one test of a sandbox's isolation: a probe, a program that tries something forbidden inside a
// sandbox, with the limits of that sandbox.
type trial struct {
	probe  string
	args   []string
	limits catalog.Limits
	// network, if set, replaces the network of the request. note is added to the report.
	network, note string
	// small is the trial to run instead if a busy machine gives no clear result.
	small *trial
	// rule, if set, adds the rule of the policy that the probe tries to break.
	rule func(*catalog.Policy)
	// prepare, if set, makes files of the host that the probe tries to reach, and may change the request for the
	// sandbox. The function that it returns removes them.
	prepare func(*hostfs.Request) (remove func(), err error)
	// refusal, if set, is the error with which the start of the sandbox is refused where the rule holds.
	refusal error
	// landlock is set if the kernel's Landlock enforces the rule. Where Landlock is missing or too old for it, no
	// sandbox with such a rule starts, so that it holds.
	landlock bool
	// about returns the probe's arguments, if they depend on the sandbox.
	about subject
	// seen, if set, changes the report of the probe by the events after the one with the number after.
	seen func(r prove.Report, after uint64) prove.Report
	// judge, if set, changes the report of the probe by promoted, the error of a dry run of promoting the sandbox's
	// result.
	judge func(r prove.Report, promoted error) prove.Report
	// quick is set if the probe takes almost no time.
	quick bool
	// terminal is set if the probe is started with a terminal of the host as input, which should be refused.
	terminal bool
}

// wallTrials returns the tests of a sandbox's isolation except those of limits. Some of their probes,
// programs in the sandbox, try to connect to host, which listens outside the sandbox.
func (p *prover) wallTrials(host *probeHost) []trial {
	self := strconv.Itoa(os.Getpid())
	start, _ := prove.StartOf(os.Getpid()) // without it the probes report that they could not try
	args := map[string][]string{
		"see-process": {self, start}, "signal-process": {self, start}, "trace-process": {self, start},
		"name": {"localhost:" + host.port}, "ipv4": {host.ipv4}, "ipv6": {host.ipv6},
		"resolver": {host.resolver, noSuchName}, "loopback": {host.port}, "abstract-socket": {host.name},
	}
	none := map[string]bool{"other-sandbox": true} // its target does not exist yet
	for _, name := range slices.Concat(serverProbes, ruleProbes) {
		none[name] = true // tried later, with a server or a rule of their own
	}
	if rules, allowed, _ := hostfs.NetworkRules(p.req.Policy.Network); allowed {
		args["name"] = []string{noSuchName + ":443"} // resolving the name is enough
		_, none["name"] = rules.Name(noSuchName, 443)
		if p.req.Policy.Ask > 0 {
			none["name"] = true // it has an address, and the probe ask connects to it
		}
		for name, at := range map[string]string{"ipv4": host.ipv4, "ipv6": host.ipv6, "resolver": host.resolver, "metadata": "169.254.169.254:80"} {
			if to, err := netip.ParseAddrPort(at); err == nil {
				_, none[name] = rules.Addr(to) // an allowed address is no wall
			}
		}
	}
	for _, h := range tryableLimits() {
		none[h.probe], none[h.also] = true, true // limits have trials of their own
	}
	if p.req.Policy.Network == "host" {
		for _, name := range networkProbes {
			none[name] = true
		}
	}
	about := p.e.subjects()
	about[replacedSecret] = p.replaced()
	var all []trial
	for _, probe := range prove.List() {
		if !none[probe.Name] {
			all = append(all, trial{probe: probe.Name, args: args[probe.Name], about: about[probe.Name], quick: probe.Quick, terminal: probe.Name == hostTerminal})
		}
	}
	return all
}

// try runs the probe of t, an attempt to break out of a sandbox, inside a sandbox and returns its report. The
// sandbox is a separate one if t has limits or a network of its own, else the one that such tests share.
func (p *prover) try(ctx context.Context, t trial) prove.Report {
	try := p.tryWall
	if t.limits != (catalog.Limits{}) || t.network != "" || t.rule != nil || t.prepare != nil {
		try = p.tryAlone
	}
	report, err := try(ctx, t)
	if err != nil {
		report = t.notStarted(err)
	}
	if t.small != nil && err == nil && !report.Held && (report.Busy || strings.Contains(report.Happened, "the disk is slow")) {
		return p.try(ctx, *t.small)
	}
	report.Tried += t.note
	return report
}

// notStarted returns the report of the test t if its sandbox did not start because of err. The isolation held only
// if the rule forbids the start, or if this host cannot enforce the rule, and therefore starts no sandbox with it;
// after any other error nothing is known.
func (t *trial) notStarted(err error) prove.Report {
	if t.refusal != nil && errors.Is(err, t.refusal) {
		return prove.Report{Probe: t.probe, Tried: "start a sandbox in which " + strings.Join(t.args, " ") + " has another content than the rule", Happened: t.refusal.Error(), Held: true}
	}
	if t.landlock && errors.Is(err, isolate.ErrOldLandlock) {
		return prove.Report{Probe: t.probe, Tried: "start a sandbox with the rule", Happened: "not enforceable here, so none starts: " + err.Error(), Held: true}
	}
	return prove.Untried(t.probe, t.args, err)
}

// tryAlone runs the probe of t, an attempt to break out, in a new sandbox of its own, with the limits or
// network of t, and discards the sandbox. It returns the probe's report.
func (p *prover) tryAlone(ctx context.Context, t trial) (prove.Report, error) {
	req := p.req
	req.Policy.Limits = t.limits
	if t.network != "" {
		req.Policy.Network = t.network
	}
	if t.rule != nil {
		t.rule(&req.Policy)
	}
	if t.prepare != nil {
		remove, err := t.prepare(&req)
		if err != nil {
			return prove.Report{}, err
		}
		defer remove()
	}
	var after uint64
	if t.seen != nil {
		var err error
		if after, err = events.Newest(p.e.cat.Dir()); err != nil {
			return prove.Report{}, err
		}
	}
	var heldBack time.Duration
	var promoted error
	r, err := p.hear(t, func(c engine.Command) (st isolate.Status, err error) {
		c.Dir = req.Workspace
		s, err := p.e.engine.Run(ctx, req, c)
		if err != nil {
			return st, err
		}
		st, err = s.Proc.Wait(ctx)
		if g := s.Supervisor.Resources.Group; g != nil {
			if u, err := g.Usage(); err == nil {
				heldBack = u.Throttled.Value
			}
		}
		if t.judge != nil && err == nil {
			if err = s.End(ctx); err == nil {
				_, promoted = s.Promote(ctx, reconcile.PromoteOptions{DryRun: true}, false)
			}
		}
		return st, errors.Join(err, s.Discard(context.WithoutCancel(ctx)))
	})
	if t.seen != nil && err == nil {
		r = t.seen(r, after)
	}
	if t.judge != nil && err == nil && r.WasTried() {
		r = t.judge(r, promoted)
	}
	if r.Busy && heldBack >= time.Second/2 { // nothing else delays it
		r.Held, r.Happened = true, fmt.Sprintf("on a busy machine it was delayed for %v", heldBack.Round(time.Millisecond))
	}
	return r, err
}

// tryWall runs the probe of t, an attempt to break out, in the sandbox without limits that all such probes
// share. The first call starts that sandbox.
func (p *prover) tryWall(ctx context.Context, t trial) (r prove.Report, err error) {
	if p.walls == nil {
		s, err := p.e.engine.Run(ctx, p.req, engine.Command{Args: []string{"/bin/true"}, Env: []string{}, Dir: p.req.Workspace})
		if err != nil {
			return r, err
		}
		p.walls = s
	}
	if a := t.about; a.paths != nil {
		if t.args = a.paths(ctx, p.walls.Record, p.walls.Supervisor); len(t.args) == 0 {
			return prove.Report{Probe: t.probe, Tried: a.tried, Happened: a.none, Held: true}, nil
		}
		if a.after != nil {
			defer a.after(t.args)
		}
	}
	return p.hear(t, func(c engine.Command) (st isolate.Status, err error) {
		c.Dir = p.req.Workspace
		proc, err := p.walls.Supervisor.Start(ctx, c)
		if err != nil {
			return st, err
		}
		if st, err = proc.Wait(ctx); err != nil { // the sandbox continues
			err = errors.Join(err, p.close(ctx))
		}
		return st, errors.Join(err, proc.Close())
	})
}

// hear runs the probe of t, a program that tries to break out of a sandbox, and returns the report that it
// printed. It completes the command of the probe, and calls run to execute that command in a sandbox.
func (p *prover) hear(t trial, run func(engine.Command) (isolate.Status, error)) (prove.Report, error) {
	var tty *os.File
	if t.terminal {
		var err error
		if tty, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
			return prove.Report{}, err
		}
		defer tty.Close()
	}
	st, said, err := listen(func(c engine.Command) (isolate.Status, error) {
		c.Stdin = tty
		c.Args = slices.Concat(p.program, []string{t.probe}, t.args)
		return run(c)
	})
	if t.terminal && errors.Is(err, errs.ErrInvalid) {
		return prove.Report{Probe: t.probe, Tried: "use a terminal of the host", Happened: err.Error(), Held: true}, nil
	}
	if err != nil {
		return prove.Report{}, err
	}
	return prove.Read(t.probe, said, st.Signal != 0), nil
}

// listen calls run, which executes a command in a sandbox, with a pipe as the command's standard output. It
// returns the exit status and the output.
func listen(run func(engine.Command) (isolate.Status, error)) (st isolate.Status, text []byte, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return st, nil, err
	}
	defer out.Close()
	said := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(out, 1<<20)) // a truncated text is no report
		said <- text
	}()
	st, err = run(engine.Command{Env: hostfs.Environ(append(os.Environ(), plantedVariable+"=x"), nil), Stdout: in})
	in.Close()
	return st, <-said, err
}

// close discards the sandboxes that the self-test has used for several of its attempts to break out, and removes the
// file that it has planted.
func (p *prover) close(ctx context.Context) (err error) {
	for _, s := range []*engine.Session{p.walls, p.other} {
		if s != nil {
			err = errors.Join(err, s.Discard(context.WithoutCancel(ctx)))
		}
	}
	p.walls, p.other = nil, nil
	removePlanted(p.planted)
	return err
}

// hostTerminal is the name of the self-test's probe (attempt to break out) that tries, in a sandbox, to use a
// terminal of the host.
const hostTerminal = "host-terminal"

// serverProbes are the names of the self-test's probes (attempts to break out) that try to reach a forbidden
// host name through a server that the network rules allow.
var serverProbes = []string{"tls-name", "http-name", "tls-record", "http-blank"}

// networkProbes are the names of the self-test's probes that try to reach a forbidden network destination
// from a sandbox.
var networkProbes = []string{"name", "ipv4", "ipv6", "resolver", "metadata", "loopback"}

// serverTrials returns the tests in which a sandbox tries to reach a forbidden host name through a server
// that it may reach. The server is part of this process.
func (p *prover) serverTrials(ctx context.Context, host *probeHost) (all []trial) {
	if _, allowed, _ := hostfs.NetworkRules(p.req.Policy.Network); !allowed {
		return nil
	}
	if host.serve(ctx); host.served == "" {
		host.served = "localhost:" + host.port // the probe reports that it could not try
	}
	for _, name := range serverProbes {
		t := trial{probe: name, args: []string{host.served, noSuchName}, network: p.req.Policy.Network}
		if host.rules != "" {
			t.network += "," + host.rules
		}
		all = append(all, t)
	}
	return all
}

// otherTrial starts a second sandbox, which close discards, and returns a test in which a probe tries to
// reach that sandbox from another. It returns none if the sandbox does not start.
func (p *prover) otherTrial(ctx context.Context) ([]trial, error) {
	s, err := p.e.engine.Run(ctx, p.req, engine.Command{Args: []string{"/bin/true"}, Env: []string{}, Dir: p.req.Workspace})
	if err != nil {
		return nil, nil //nolint:nilerr // each of the others says why none can be started
	}
	p.other = s
	start, err := prove.StartOf(s.Supervisor.Container.PID())
	if err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	args := []string{strconv.Itoa(s.Supervisor.Container.PID()), start, p.e.cat.Path(s.Record.Name)}
	for _, t := range s.Record.Trees {
		if b, err := p.e.engine.Host.BackendOf(ctx, t); err == nil {
			if f, err := b.LookupFork(ctx, t.Fork); err == nil && f.View.Path != "" {
				args = append(args, f.View.Path)
			}
		}
	}
	return []trial{{probe: "other-sandbox", args: args}}, nil
}

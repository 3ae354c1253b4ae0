//go:build linux

// Package proxied measures HTTP requests that the network proxy of a sandbox reads, to put a secret into them, and for
// comparison requests through nginx, which does the same as a reverse proxy: it ends TLS, sets a header, and speaks
// TLS to the server.
//
// The server and the client are the same in both, and run on the same processors. In a sandbox, the connection
// passes a TCP/IP stack of the proxy's own, too.
package proxied

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/internal/run"
)

// Files is the number of files in the tree of which the sandbox is made.
const Files = 100

// A Lab says where and with which programs to measure.
type Lab struct {
	// Program is the path of snapfs, Self that of a program that calls [Request] for the role [Role]. State is the
	// path of a new state directory, and Env the environment of commands.
	Program, Self, State string
	Env                  []string
	// Backend is the name of the backend.
	Backend string
	// Quick measures too little to be believed, to test the measurement itself.
	Quick bool
	// Clear removes the sandboxes of a state directory.
	Clear func(ctx context.Context, state string) error
	// Tree returns the directory to make sandboxes of.
	Tree func(context.Context) (string, error)
}

// Checks returns the checks of requests through a sandbox's proxy. They share one measurement, which takes about 10 s.
func (l Lab) Checks() []timing.Check {
	m := &measurements{lab: l}
	return []timing.Check{
		{Name: "the proxy adds to a request into which it puts a secret, median", Unit: "ms", Limit: 1, Measure: m.check(measurement.adds)},
		{Name: "requests a second through nginx as a reverse proxy, to those through the proxy", Unit: "×", Limit: 2, Held: 4, Measure: m.check(measurement.throughput)},
	}
}

// measurements are all measurements so far, which the checks share.
type measurements struct {
	lab Lab
	all []measurement
}

// A measurement has what clients measured by three ways to one server: direct, through nginx, and from a sandbox
// through its proxy.
type measurement struct {
	direct, nginx, inside rates
}

// rates is what a client measured: the median of requests one after another on one connection, and how many requests
// were answered in a second on many connections. Processor is the processor time of a request on average: of the client
// and of all that snapfs or nginx does for it, without the server.
type rates struct {
	Median    time.Duration
	Second    float64
	Processor time.Duration
}

// check returns the measuring function of a check. judge makes the value and its explanation from a measurement. Each
// call of the function judges the next measurement, and makes it unless another check has.
func (m *measurements) check(judge func(measurement) (float64, string)) func(context.Context) (float64, string, error) {
	next := 0
	return func(ctx context.Context) (float64, string, error) {
		if next == len(m.all) {
			one, err := m.lab.measure(ctx)
			if err != nil {
				return 0, "", err
			}
			m.all = append(m.all, one)
		}
		next++
		value, detail := judge(m.all[next-1])
		return value, detail, nil
	}
}

// adds returns by how many milliseconds the proxy delays a request, and an explanation.
func (m measurement) adds() (float64, string) {
	added := m.inside.Median - m.direct.Median
	return added.Seconds() * 1000, fmt.Sprintf("%s from a sandbox through its proxy, %s directly, %s through nginx", timing.Ms(m.inside.Median), timing.Ms(m.direct.Median), timing.Ms(m.nginx.Median))
}

// throughput returns the rate of requests through nginx relative to the one through the proxy, and an explanation.
func (m measurement) throughput() (float64, string) {
	detail := fmt.Sprintf("%.0f a second from a sandbox through its proxy, %.0f through nginx, %.0f directly, on %d connections; processor time of client and proxy %s, %s and %s for a request",
		m.inside.Second, m.nginx.Second, m.direct.Second, connections, timing.Ms(m.inside.Processor), timing.Ms(m.nginx.Processor), timing.Ms(m.direct.Processor))
	return m.nginx.Second / m.inside.Second, detail
}

// measure measures requests by all three ways.
func (l Lab) measure(ctx context.Context) (m measurement, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(l.State), "proxied-")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := serve(dir)
	if err != nil {
		return m, err
	}
	defer s.close()
	o := order{URL: s.url(), Address: s.address, Rounds: 2000, Many: 20_000}
	if l.Quick {
		o.Rounds, o.Many = 100, 1000
	}
	if m.direct, err = timed(o, func() (rates, error) { return l.client(ctx, s, o, s.key) }); err != nil {
		return m, err
	}
	if m.nginx, err = timed(o, func() (rates, error) { return l.throughNginx(ctx, dir, s, o) }); err != nil {
		return m, err
	}
	o.Address = "" // by its name, which leads to the proxy
	m.inside, err = timed(o, func() (rates, error) { return l.sandboxed(ctx, s, o) })
	return m, err
}

// timed returns the rates that f measured, with the processor time of the processes that ended in it.
func timed(o order, f func() (rates, error)) (rates, error) {
	before := timing.Processor(unix.RUSAGE_CHILDREN)
	r, err := f()
	r.Processor = (timing.Processor(unix.RUSAGE_CHILDREN) - before) / time.Duration(o.Rounds+o.Many)
	return r, err
}

// throughNginx measures requests by a process of the host to nginx, with its files in dir, which sets the key.
func (l Lab) throughNginx(ctx context.Context, dir string, s *server, o order) (r rates, err error) {
	front, stop, err := reverseProxy(ctx, dir, s)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	o.Address = front
	return l.client(ctx, s, o, "a placeholder")
}

// client measures requests by a process of the host, which sends key.
func (l Lab) client(ctx context.Context, s *server, o order, key string) (rates, error) {
	return l.start(ctx, s, o, "API_KEY="+key, []string{l.Self})
}

// sandboxed measures requests by a process in a sandbox, whose proxy puts the key into them.
func (l Lab) sandboxed(ctx context.Context, s *server, o order) (r rates, err error) {
	tree, err := l.Tree(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Clear(context.WithoutCancel(ctx), l.State)) }()
	host := strings.TrimPrefix(s.url(), "https://")
	host = host[:strings.Index(host, "/")]
	return l.start(ctx, s, o, "BENCH_KEY="+s.key, []string{
		l.Program, "run", "-q", "--discard", "-C", tree, "--backend", l.Backend,
		"--net", "allow:GET https://" + host + "/v1/*", "--secret", "API_KEY=env:BENCH_KEY@" + host, "--", l.Self,
	})
}

// start runs a command line, which ends with this program, as a client, with one more variable.
func (l Lab) start(ctx context.Context, s *server, o order, variable string, args []string) (r rates, err error) {
	ask, err := json.Marshal(o)
	if err != nil {
		return r, err
	}
	var out strings.Builder
	err = run.Run(ctx, run.Program{
		Name: args[0], Args: append(args[1:], "--role", Role, "--order", string(ask)), Stdout: &out,
		Env: append(append([]string{}, l.Env...), "SNAPFS_HOME="+l.State, "SSL_CERT_FILE="+s.certificate, variable),
	})
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(out.String()), &r)
}

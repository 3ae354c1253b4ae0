package selftest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/isolate"
)

// proofTime bounds the self-test of the isolation at the start of a sandbox. If it takes longer, the start
// fails.
const proofTime = 30 * time.Second

// tryWalls runs, in a running container, the quick probes: programs that try to break out of the isolation.
// program opens a sealed copy of the program that has them. They run in one process, before the sandbox's
// command starts. Cost: about ten milliseconds. Errors: [supervise.ErrWall] with the first boundary that did
// not hold, beside the proof.
func (ts *Tester) tryWalls(ctx context.Context, rec *catalog.Record, h *supervise.Supervisor, program func() (*os.File, error)) (*catalog.Proof, error) {
	fail := func(err error) (*catalog.Proof, error) {
		return nil, &errs.Error{Op: "trying the walls", Path: rec.Name, Kind: supervise.ErrWall, Err: err}
	}
	began := time.Now()
	probe, err := program()
	if err != nil {
		return fail(err)
	}
	defer probe.Close()
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	host, err := listenForProbes()
	if err != nil {
		return fail(err)
	}
	defer host.close()
	p := prover{e: ts, req: hostfs.Request{Workspace: rec.Workspace, Policy: rec.Policy}}
	trials := slices.DeleteFunc(p.wallTrials(host), func(t trial) bool { return !t.quick })
	var list [][]string
	var made []func()
	defer func() {
		for _, remove := range made {
			remove()
		}
	}()
	trials = slices.DeleteFunc(trials, func(t trial) bool {
		if t.about.paths != nil {
			if t.args = t.about.paths(ctx, rec, h); len(t.args) == 0 {
				return true
			}
			if t.about.after != nil {
				made = append(made, func() { t.about.after(t.args) })
			}
		}
		list = append(list, append([]string{t.probe}, t.args...))
		return false
	})
	text, err := exactjson.Encode(list)
	if err != nil {
		return fail(err)
	}
	defer h.Proxy.Forget()
	said, killed, err := ts.runProbes(ctx, h, probe, string(text))
	if err != nil {
		return fail(err)
	}
	proof := &catalog.Proof{When: began}
	for _, t := range trials {
		r := prove.Read(t.probe, said, killed)
		if r.Held {
			proof.Held = append(proof.Held, t.probe)
		} else {
			proof.Crossed = append(proof.Crossed, catalog.Wall{Name: t.probe, Tried: r.Tried, Happened: r.Happened})
		}
	}
	proof.Took = time.Since(began)
	if len(proof.Crossed) > 0 {
		w := proof.Crossed[0]
		err := fmt.Errorf("%d of %d walls do not hold, and the command was not started: %s: %s: %s", len(proof.Crossed), len(trials), w.Name, w.Tried, w.Happened)
		return proof, &errs.Error{Op: "trying the walls", Path: rec.Name, Kind: supervise.ErrWall, Err: err, Hints: []string{"snapfs doctor --prove"}}
	}
	return proof, nil
}

// runProbes runs the probes of list (JSON), which try to break out, in one process in the sandbox's
// container, and returns their output. killed is set if a signal ended that process. program must be a sealed
// copy of the probe program, which no process inside can change.
func (ts *Tester) runProbes(ctx context.Context, h *supervise.Supervisor, program *os.File, list string) (said []byte, killed bool, err error) {
	st, said, err := listen(func(c engine.Command) (isolate.Status, error) {
		c.Args = slices.Concat([]string{"/proc/self/fd/0"}, ts.probe[1:], []string{prove.Several, list})
		c.Dir, c.Stdin = "/", program
		p, err := h.Start(ctx, c)
		if err != nil {
			return isolate.Status{}, err
		}
		st, err := p.Wait(ctx)
		return st, errors.Join(err, p.Close())
	})
	return said, st.Signal != 0, err
}

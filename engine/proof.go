package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/isolate"
)

// proofTime is how long the walls may be tried before a start is given up.
const proofTime = 30 * time.Second

// startHost starts a sandbox's processes: a box, and command in it where it is
// not nil, after its walls were tried where its policy wants that. The rest is as for
// startBox. Errors: also ErrWall; then rec has the proof.
func (e *Engine) startHost(ctx context.Context, rec *catalog.Record, begun *isolate.Prepared, allowed *allowance, real func() search, command *isolate.Command) (*host, *isolate.Process, error) {
	if !rec.Policy.Prove {
		return e.startBox(ctx, rec, begun, allowed, real, command)
	}
	program := e.copyProbe() // beside the start
	h, _, err := e.startBox(ctx, rec, begun, allowed, real, nil)
	if err != nil {
		if unused, _ := program(); unused != nil {
			unused.Close()
		}
		return nil, nil, err
	}
	var p *isolate.Process
	if rec.Proof, err = e.selfTest(ctx, rec, h, program); err == nil && command != nil {
		if p, err = h.start(ctx, *command); err == nil {
			h.timers = append(h.timers, h.allowed.within(p), h.warden.attend(p.PTY(), command.Stdin, command.Stdout, command.Stderr))
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, h.close(context.WithoutCancel(ctx)))
	}
	return h, p, nil
}

// tryWalls tries, in a box that is there, the walls that take no time: all in one
// process. Cost: some ten milliseconds. Errors: ErrWall with what did not hold, beside
// the proof.
func (e *Engine) tryWalls(ctx context.Context, rec *catalog.Record, h *host, program func() (*os.File, error)) (*catalog.Proof, error) {
	fail := func(err error) (*catalog.Proof, error) {
		return nil, &errs.Error{Op: "trying the walls", Path: rec.Name, Kind: ErrWall, Err: err}
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
	p := prover{e: e, req: Request{Workspace: rec.Workspace, Policy: rec.Policy}}
	trials := slices.DeleteFunc(p.wallTrials(host), func(t trial) bool { return !t.quick })
	var list [][]string
	trials = slices.DeleteFunc(trials, func(t trial) bool {
		if t.about.paths != nil {
			if t.args = t.about.paths(ctx, rec, h); len(t.args) == 0 {
				return true
			}
		}
		list = append(list, append([]string{t.probe}, t.args...))
		return false
	})
	text, err := json.Marshal(list)
	if err != nil {
		return fail(err)
	}
	defer h.outlet.forget()
	said, killed, err := e.runProbes(ctx, h, probe, string(text))
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
		return proof, &errs.Error{Op: "trying the walls", Path: rec.Name, Kind: ErrWall, Err: err, Hints: []string{"snapfs doctor --prove"}}
	}
	return proof, nil
}

// copyProbe copies the program that probes run in, beside whatever comes before the
// answer is wanted.
func (e *Engine) copyProbe() func() (*os.File, error) {
	type answer struct {
		program *os.File
		err     error
	}
	copied := make(chan answer, 1)
	go func() {
		if len(e.probe) == 0 {
			copied <- answer{err: errors.New("this program was opened without probes")}
			return
		}
		program, err := proc.SealedCopy(e.probe[0])
		copied <- answer{program, err}
	}()
	return func() (*os.File, error) {
		a := <-copied
		return a.program, a.err
	}
}

// runProbes runs probes in a box, in a copy of the program that nothing in there can
// have changed.
func (e *Engine) runProbes(ctx context.Context, h *host, program *os.File, list string) (said []byte, killed bool, err error) {
	st, said, err := listen(func(c Command) (isolate.Status, error) {
		c.Args = slices.Concat([]string{"/proc/self/fd/0"}, e.probe[1:], []string{prove.Several, list})
		c.Dir, c.Stdin = "/", program
		p, err := h.start(ctx, c)
		if err != nil {
			return isolate.Status{}, err
		}
		st, err := p.Wait(ctx)
		return st, errors.Join(err, p.Close())
	})
	return said, st.Signal != 0, err
}

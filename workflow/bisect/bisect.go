// Package bisect finds the snapshot of a sandbox with which a check began to fail, by binary search.
package bisect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
)

// Verdicts of the check command on one state of the sandbox, by its exit status. Skipped means that the
// command could not judge the state.
const (
	Good    = "good"
	Bad     = "bad"
	Skipped = "skipped"
)

// skip is the exit status by which the check command says that it cannot judge a state of the sandbox, the
// same as for git bisect run.
const skip = 125

// leftover is the age at which snapfs removes the fork in which a check of the binary search ran, if the
// search itself was killed before it removed the fork.
const leftover = time.Hour

// A Search looks, by binary search, for the first snapshot of a sandbox with which a check command fails. The
// fields are its options; Run performs it.
type Search struct {
	Sandbox string
	// Check is the command. It succeeds in a good state.
	Check []string
	// Dir and Env are those of the command.
	Dir string
	Env []string
	// Output receives what the checks print.
	Output io.Writer
	// Before is called before each check; it may be nil.
	Before func(state string, left int)
}

// A Result says which snapshot of a sandbox is the first in which the check command fails, and how each
// checked state was judged.
type Result struct {
	Sandbox string `json:"sandbox"`
	// Bad is the first bad state, and Good the last state before it that is good, "" for the base, which is not
	// checked. If skipped states leave several answers, Bad is the last of Candidates.
	Bad        string   `json:"bad"`
	Good       string   `json:"good"`
	Candidates []string `json:"candidates"`
	// Why is why snapfs took the first bad state by itself; nil where somebody asked for it.
	Why    *catalog.Why `json:"why,omitempty"`
	Checks []Check      `json:"checks"`
}

// A Check is the outcome of the check command in one state (snapshot) of the sandbox, one step of the binary
// search for the first bad state.
type Check struct {
	State   string `json:"state"`
	Status  int    `json:"status"`
	Verdict string `json:"verdict"`
}

// Run searches among the snapshots that led to the sandbox's present files. It takes the base for good and
// checks the newest state first, which must be bad. Each check runs in a fork of the state to check, and the
// fork is removed afterwards. Cost: one check, and log2 of the number of states. Errors: errs.ErrNotFound (no
// snapshots), errs.ErrInvalid (the newest state is good, or the check was killed), errs.ErrInterrupted, and
// those of a fork and of a command.
func (s *Search) Run(ctx context.Context, e *engine.Engine, rec *catalog.Record) (*Result, error) {
	line := keypoint.Line(rec)
	r := &Result{Sandbox: s.Sandbox, Candidates: []string{}, Checks: []Check{}}
	if len(line) == 0 {
		return nil, errs.New("bisecting", s.Sandbox, errs.ErrNotFound, "the sandbox has no snapshots", "snapfs new --snapshot-at exec", "snapfs snapshot "+s.Sandbox)
	}
	verdicts := make([]string, len(line))
	try := func(i, left int) (err error) {
		if s.Before != nil {
			s.Before(line[i].Name, left)
		}
		verdicts[i], err = s.check(ctx, e, line[i].Name, r)
		return err
	}
	last := len(line) - 1
	if err := try(last, last); err != nil {
		return nil, err
	}
	if verdicts[last] != Bad {
		return nil, errs.New("bisecting", s.Sandbox, errs.ErrInvalid, fmt.Sprintf("the check does not fail in the newest state, %s", line[last].Name), "snapfs timeline "+s.Sandbox)
	}
	good, bad := -1, last
	for {
		i := middle(verdicts, good, bad)
		if i < 0 {
			break
		}
		if err := try(i, bad-good-1); err != nil {
			return nil, err
		}
		switch verdicts[i] {
		case Good:
			good = i
		case Bad:
			bad = i
		}
	}
	for _, m := range line[good+1 : bad+1] {
		r.Candidates = append(r.Candidates, m.Name)
	}
	r.Bad, r.Why = line[bad].Name, line[bad].Why
	if good >= 0 {
		r.Good = line[good].Name
	}
	return r, nil
}

// middle returns the index of the state that is nearest to the middle between the states good and bad and has
// no verdict yet, or -1 if there is none.
func middle(verdicts []string, good, bad int) int {
	at := (good + bad + 1) / 2
	for off := range bad - good {
		for _, i := range []int{at + off, at - off} {
			if i > good && i < bad && verdicts[i] == "" {
				return i
			}
		}
	}
	return -1
}

// check runs the check command in a fork of the named state, which it removes afterwards, and returns the
// verdict. It adds the outcome to r.
func (s *Search) check(ctx context.Context, e *engine.Engine, state string, r *Result) (verdict string, err error) {
	fork, err := e.Fork(ctx, s.Sandbox, state, "bisect-"+catalog.NewID())
	if err != nil {
		return "", err
	}
	defer func() {
		if rerr := e.Remove(context.WithoutCancel(ctx), fork.Name); !errors.Is(rerr, errs.ErrNotFound) {
			err = errors.Join(err, rerr)
		}
	}()
	if err := e.Sandboxes.MakeTemporary(ctx, fork.Name, leftover); err != nil {
		return "", err
	}
	status, err := s.run(ctx, e, fork.Name)
	if err != nil {
		return "", err
	}
	switch {
	case status == 0:
		verdict = Good
	case status == skip:
		verdict = Skipped
	case status > 127:
		return "", errs.New("checking", state, errs.ErrInvalid, fmt.Sprintf("the check ended with status %d, which is neither good nor bad", status))
	default:
		verdict = Bad
	}
	r.Checks = append(r.Checks, Check{State: state, Status: status, Verdict: verdict})
	return verdict, nil
}

// run runs the check command in the sandbox called name, a fork of the state to judge, and returns its exit
// status.
func (s *Search) run(ctx context.Context, e *engine.Engine, name string) (int, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer out.Close()
	p, err := e.Supervise.ExecWith(ctx, name, engine.Command{Args: s.Check, Env: slices.Clone(s.Env), Dir: s.Dir, Stdout: in, Stderr: in}, supervise.ExecOptions{})
	in.Close()
	if err != nil {
		return 0, err
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(s.Output, out) //nolint:errcheck // what the checks print is for people
	}()
	st, err := p.Wait(ctx)
	err = errors.Join(err, p.Close())
	out.SetReadDeadline(time.Now().Add(time.Second)) //nolint:errcheck // pipes support deadlines
	<-copied
	return st.ExitCode(), err
}

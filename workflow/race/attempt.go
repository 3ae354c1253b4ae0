package race

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// An attemptRunner runs one attempt of a race, several attempts at one task, in its sandbox: command, check
// and score.
type attemptRunner struct {
	m   *coordinator
	i   int
	s   *engine.Session
	c   engine.Command
	out attemptFiles
	// search looks for the secrets of the real trees, once for all attempts that start at once; nil means
	// to search for them.
	search *hostfs.Search
	// place is the attempt's admission slot, or nil before it has one.
	place *admission.Slot
	said  *sink                                  // the command's output; nil before it has started
	ended func(engine.Status, *catalog.LimitHit) // announces the end of the command
	// unwatch ends the watch of the budget; it does nothing before the command has started.
	unwatch func()
	// err is why the attempt could not run.
	err error
	// made holds the snapshots of the command's result, taken before a check or a score writes
	// to the trees.
	made []snapshot.ID
}

// run runs one attempt of a race (command, check and score) to its end. Afterwards no process of the attempt
// runs.
func (l *attemptRunner) run(ctx context.Context) {
	defer func() { l.m.e.engine.Supervise.ReleaseSlot(l.place) }() // unless the command got it
	if err := l.admit(ctx); err != nil && ctx.Err() == nil {
		l.err = err
		l.m.note(l.i, func(a *Attempt) { a.State, a.Why = Broken, err.Error() })
		return
	}
	if l.m.req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, l.m.req.Timeout, errTooLong)
		defer cancel()
	}
	if ctx.Err() != nil {
		l.m.note(l.i, func(a *Attempt) { a.State, a.Why = Stopped, context.Cause(ctx).Error() })
		return
	}
	began := time.Now()
	l.m.note(l.i, func(a *Attempt) { a.State, a.Started = Running, began })
	l.unwatch = func() {}
	state, err := l.race(ctx)
	took := time.Since(began)
	cleaning := context.WithoutCancel(ctx)
	if cerr := errors.Join(l.s.End(cleaning), l.said.whole(), l.rewind(cleaning)); cerr != nil {
		state, err = Broken, errors.Join(err, cerr)
	}
	l.unwatch()
	if state == Passed {
		l.m.passed(l.i)
	}
	if state == Broken {
		l.err = err
	}
	var size *ResultSize
	if err == nil { // an attempt whose size is unknown has passed all the same
		if size, err = l.sizeSoon(cleaning); err != nil {
			err = fmt.Errorf("what it changed is not known: %w", err)
		}
	}
	l.m.note(l.i, func(a *Attempt) {
		a.State, a.Took, a.Size = state, took, size
		if err != nil {
			a.Why = err.Error()
		}
	})
}

// admit waits for a slot, the permission to run a sandbox on a busy host, if the request says to queue for
// one.
func (l *attemptRunner) admit(ctx context.Context) (err error) {
	if when := l.m.req.Admission; when.Queue > 0 {
		l.place, err = l.m.e.engine.Supervise.Admit(ctx, l.s.Record.Policy.Limits, when)
	}
	return err
}

// race runs the command, the check and the score of one attempt of a race. It returns the attempt's final
// state, and an error with details.
func (l *attemptRunner) race(ctx context.Context) (AttemptState, error) {
	if err := l.start(ctx); err != nil {
		return l.cannot(ctx, err)
	}
	l.unwatch = l.watchBudget()
	st, err := l.s.Proc.Wait(ctx)
	if err != nil {
		return l.cannot(ctx, err)
	}
	l.ended(st, nil)
	l.m.note(l.i, func(a *Attempt) { a.Ended = endOf(st) })
	if st.ExitCode() != 0 {
		return Failed, nil
	}
	if l.m.req.Check == nil && l.m.req.Score == nil {
		return Passed, nil
	}
	if err := l.saveResult(ctx); err != nil {
		return l.cannot(ctx, err)
	}
	if l.m.req.Check != nil {
		l.m.note(l.i, func(a *Attempt) { a.State = Checking })
		began := time.Now()
		st, err := l.exec(ctx, *l.m.req.Check, l.out.check)
		if err != nil {
			return l.cannot(ctx, err)
		}
		check := events.Check{When: events.BeforePromotion, Args: l.m.req.Check.Args, Status: st.ExitCode(), Took: time.Since(began)}
		if l.out.check != nil {
			check.Output = l.out.check.Name()
		}
		l.m.e.engine.Events().CheckEnded(l.s.Record.Name, l.s.Record.ID, check)
		l.m.note(l.i, func(a *Attempt) { a.Checked = endOf(st) })
		if st.ExitCode() != 0 {
			return Failed, nil
		}
	}
	if l.m.req.Score != nil {
		return l.score(ctx)
	}
	return Passed, nil
}

// cannot returns the final state of an attempt of a race in which a step failed with err: TimedOut or Stopped
// if ctx ended, else Broken with err.
func (l *attemptRunner) cannot(ctx context.Context, err error) (AttemptState, error) {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return Broken, err
	case errors.Is(cause, errTooLong):
		return TimedOut, nil
	}
	return Stopped, nil
}

// start starts the sandbox of an attempt of a race and the command in it, whose output goes to the attempt's
// file.
func (l *attemptRunner) start(ctx context.Context) (err error) {
	if l.said, err = newSink(l.out.command); err != nil {
		return err
	}
	defer l.said.handed()
	l.c.Stdout, l.c.Stderr = l.said.w, l.said.w
	if l.search == nil {
		l.search = hostfs.SearchSecrets()
	}
	place := l.place
	l.place = nil
	begun, allowed, err := l.m.e.engine.Supervise.Prepare(ctx, l.s.Record.Workspace, l.s.Record.Policy, &l.c, place)
	if err != nil {
		return err
	}
	start, err := l.m.e.engine.Supervise.Starting(l.s.Record, &l.c)
	if err != nil {
		return errors.Join(err, begun.Close(), allowed.Close(context.WithoutCancel(ctx)))
	}
	l.s.Supervisor, l.s.Proc, err = l.m.e.engine.Supervise.Start(ctx, l.s.Record, begun, allowed, l.search, &l.c)
	if err == nil {
		l.ended = l.m.e.engine.Supervise.Started(l.s.Record, l.s.Supervisor, start)
		l.m.level(l.s.Supervisor.Container.Level())
		l.m.e.engine.Supervise.ReportNotes(l.s.Supervisor)
	}
	return err
}

// saveResult takes a snapshot of (seals) the attempt's trees after the command and its processes have ended,
// so that the check cannot alter the result.
func (l *attemptRunner) saveResult(ctx context.Context) error {
	if err := l.s.Supervisor.Container.Clear(ctx); err != nil {
		return err
	}
	rec, e := l.s.Record, l.m.e
	ids := sandbox.NewSnapshotIDs(rec)
	if err := e.cat.Update(rec); err != nil { // so that mending after a crash removes these too
		return err
	}
	for i, t := range rec.Trees {
		b, err := e.engine.Host.BackendOf(ctx, t)
		if err == nil {
			_, err = b.Seal(ctx, t.Fork, ids[i], snapshot.InUse)
		}
		if err != nil && !passing(err, rec, t) {
			return err
		}
		if err != nil {
			ids[i] = ""
		}
	}
	l.made = ids
	return nil
}

// rewind undoes the changes that the check and the score made: it replaces the attempt's forks by new forks
// of the saved result. No process may run in the sandbox.
func (l *attemptRunner) rewind(ctx context.Context) error {
	if l.made == nil {
		return nil
	}
	rec, e, old := l.s.Record, l.m.e, slices.Clone(l.s.Record.Trees)
	made := l.made
	l.made = nil
	next := make([]snapshot.ForkID, len(old))
	for i := range old {
		next[i] = rec.NewFork()
	}
	if err := e.cat.Update(rec); err != nil {
		return err
	}
	for i, t := range old {
		if made[i] == "" {
			continue
		}
		err := e.engine.Sandboxes.ForkAll(ctx, rec, old[i:i+1], made[i:i+1], next[i:i+1])
		if err == nil {
			rec.Trees[i].Fork = next[i]
			err = e.engine.Sandboxes.RemoveForks(ctx, old[i:i+1], []snapshot.ForkID{t.Fork})
		}
		if err != nil && !passing(err, rec, t) {
			return err
		}
	}
	return e.cat.Update(rec)
}

// exec runs c, the check or the score of an attempt of a race, in the attempt's sandbox with its output to
// out. Then it ends every process that c leaves running.
func (l *attemptRunner) exec(ctx context.Context, c engine.Command, out *os.File) (engine.Status, error) {
	c.Env = append(append([]string{}, c.Env...), l.c.Env[len(l.c.Env)-2:]...)
	c.Stdin, c.TTY = nil, nil
	said, err := newSink(out)
	if err != nil {
		return engine.Status{}, err
	}
	aside, err := newSink(l.out.check)
	if err != nil {
		return engine.Status{}, errors.Join(err, said.whole())
	}
	c.Stdout, c.Stderr = said.w, aside.w
	if out == l.out.check { // in the order of writing
		c.Stderr = said.w
	}
	p, start, err := l.m.e.engine.Supervise.StartIn(ctx, l.s.Record, l.s.Supervisor, c)
	said.handed()
	aside.handed()
	var st engine.Status
	if err == nil {
		ended := l.m.e.engine.Supervise.Started(l.s.Record, l.s.Supervisor, start)
		if st, err = p.Wait(ctx); err == nil {
			ended(st, nil)
			err = l.s.Supervisor.Container.Clear(ctx)
		}
		err = errors.Join(err, p.Close())
	}
	if err != nil { // processes that hold the pipes end with the container
		err = errors.Join(err, l.s.End(context.WithoutCancel(ctx)))
	}
	return st, errors.Join(err, said.whole(), aside.whole())
}

// score runs the score command of an attempt of a race and stores the number that it prints, by which the
// best attempt is chosen.
func (l *attemptRunner) score(ctx context.Context) (AttemptState, error) {
	l.m.note(l.i, func(a *Attempt) { a.State = Scoring })
	st, err := l.exec(ctx, *l.m.req.Score, l.out.score)
	if err != nil {
		return l.cannot(ctx, err)
	}
	if code := st.ExitCode(); code != 0 {
		return Failed, fmt.Errorf("the score ended with status %d", code)
	}
	n, err := readScore(l.out.score)
	if err != nil {
		return Failed, err
	}
	l.m.note(l.i, func(a *Attempt) { a.Score = &n })
	return Passed, nil
}

// readScore reads from its output file the number that the score command of a race's attempt printed. The
// file must contain exactly one.
func readScore(f *os.File) (float64, error) {
	const most = 4096
	text, err := io.ReadAll(io.NewSectionReader(f, 0, most))
	if err != nil {
		return 0, err
	}
	word := strings.TrimSpace(string(text))
	n, err := strconv.ParseFloat(word, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("the score is not a number: %.40q", word)
	}
	return n, nil
}

func endOf(st engine.Status) *Ended {
	e := &Ended{Status: st.ExitCode()}
	if st.Signal != 0 {
		e.Signal = st.Signal.String()
	}
	return e
}

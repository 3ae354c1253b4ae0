package race

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A Request describes a race, several attempts at one task: the attempts' commands and sandboxes, and how the
// winner is chosen.
type Request struct {
	// Request describes the sandboxes, one for each attempt. Each queues by itself if
	// Admission asks for that. Its name is Name, or one made from the workspace's,
	// followed by the attempt's number.
	hostfs.Request
	// Attempts are the commands. Their streams are ignored: standard input is empty, and output
	// goes to files. See attemptVariable.
	Attempts []engine.Command
	// Check runs in an attempt's sandbox after the command has exited with status 0, and Score
	// after the check; each may be nil. Score writes a number to its standard output. Their
	// changes are rolled back and are not part of the result.
	Check, Score *engine.Command
	// First stops all other attempts when one has passed.
	First bool
	// Lower makes the lowest score the best.
	Lower bool
	// Jobs is how many attempts run at once; 0 means all.
	Jobs int
	// Timeout bounds an attempt with its check and score; 0 means no limit.
	Timeout time.Duration
	// Output is the directory for the outputs, created if missing; "" means one in the state
	// directory, which has those of the last ten races.
	Output string
	// Progress is called on every change of an attempt, one call at a time. May be nil.
	Progress func(Attempt)
}

// Environment variables that snapfs sets for the command, the check and the score of an attempt of a race:
// the attempt's number, from 1, and the number of attempts.
const (
	attemptVariable  = "SNAPFS_ATTEMPT"
	attemptsVariable = "SNAPFS_ATTEMPTS"
)

// An AttemptState says how far an attempt of a race (several attempts at one task) has got, or how it ended.
type AttemptState string

// The states of an attempt of a race (several attempts at one task). From Passed on they are final.
const (
	Waiting  AttemptState = "waiting"
	Running  AttemptState = "running"
	Checking AttemptState = "checking"
	Scoring  AttemptState = "scoring"
	Passed   AttemptState = "passed"
	Failed   AttemptState = "failed"    // the command, the check or the score
	TimedOut AttemptState = "timed out" // see Request.Timeout
	Stopped  AttemptState = "stopped"   // another attempt had passed
	Broken   AttemptState = "broken"    // it could not run; see Why
)

// Final reports whether an attempt of a race that is in this state is over.
func (s AttemptState) Final() bool {
	return s != Waiting && s != Running && s != Checking && s != Scoring
}

// An Attempt is one of the commands that a race runs at the same task, each in its own sandbox, with its
// outcome.
type Attempt struct {
	// Number counts from 1.
	Number int `json:"attempt"`
	// Sandbox is the name of the attempt's sandbox.
	Sandbox string       `json:"sandbox"`
	Command []string     `json:"command"`
	State   AttemptState `json:"state"`
	// Why explains the state, if the state alone does not say enough.
	Why string `json:"why,omitempty"`
	// Ended is how the command ended, and Checked how the check ended; nil if it did not run.
	Ended   *Ended `json:"ended,omitempty"`
	Checked *Ended `json:"checked,omitempty"`
	// Score is the attempt's score, or nil.
	Score *float64 `json:"score,omitempty"`
	// Started is the time at which the attempt's first process started, and Took the duration
	// of command, check and score together.
	Started time.Time     `json:"started,omitzero"`
	Took    time.Duration `json:"took_ns"`
	// Size is the amount of changes; nil if not measured.
	Size *ResultSize `json:"size,omitempty"`
	// Drift is the drift of the real workspace from the common base; nil if not measured, or
	// not in time.
	Drift *ResultDrift `json:"drift,omitempty"`
	// Output is the file with the command's output, and CheckOutput the file with that of the
	// check and the score.
	Output      string `json:"output"`
	CheckOutput string `json:"check_output,omitempty"`
	// Kept is set if the sandbox is permanent.
	Kept bool `json:"kept"`
}

// An Ended says how a command of an attempt of a race (several attempts at one task) ended: its exit status,
// and the signal that killed it.
type Ended struct {
	// Status is the exit status as a shell reports it: 128 plus the number of the signal that
	// killed the command.
	Status int    `json:"status"`
	Signal string `json:"signal,omitempty"`
}

// A ResultSize says how much an attempt of a race (several attempts at one task) has changed in its sandbox.
type ResultSize struct {
	// Paths counts the changed paths of the workspace, except those of which only the time
	// differs.
	Paths int `json:"paths"`
	// Added and Deleted count lines of text files.
	Added   int `json:"added_lines"`
	Deleted int `json:"deleted_lines"`
	// Unread is set if the count of lines stopped at a file that this user may not read.
	Unread bool `json:"unread,omitempty"`
	// Elsewhere counts changed paths outside the workspace.
	Elsewhere int `json:"elsewhere"`
}

// A ResultDrift says how much of the real workspace has drifted from the base of a race, the state from which
// all attempts started.
type ResultDrift struct {
	Paths int `json:"paths"`
	// Both counts the drifted paths that the attempt changed too.
	Both int `json:"both"`
}

// A Race is the result of a finished race of several attempts at one task. No process runs in the attempts'
// sandboxes, which exist until the caller calls Keep, Promote or Close.
type Race struct {
	Workspace string `json:"workspace"`
	// Taken is the instant of the common base, and Frozen whether the base is frozen.
	Taken  time.Time `json:"taken"`
	Frozen bool      `json:"frozen"`
	// Output is the directory of the outputs.
	Output string `json:"output"`
	// Missing lists the protections that best effort did without.
	Missing  []string  `json:"missing,omitempty"`
	Attempts []Attempt `json:"attempts"`
	// Compared groups the attempts by their results.
	Compared Comparison `json:"comparison"`
	// Winner is the number of the first attempt that passed (with Request.First) or of the one
	// with the best score; else 0.
	Winner int `json:"winner"`

	e        *Coordinator
	sessions []*engine.Session
	changes  []*compare.Changes // of each attempt, until they are compared; nil where unknown
}

// Passed returns the numbers of the attempts of the race whose command and check succeeded.
func (r *Race) Passed() (numbers []int) {
	for _, a := range r.Attempts {
		if a.State == Passed {
			numbers = append(numbers, a.Number)
		}
	}
	return numbers
}

var (
	errBeaten  = errors.New("another attempt had passed")
	errTooLong = errors.New("it took too long")
)

// MostAttempts is how many attempts a race may have, because each has about ten open file descriptors. A race
// of more is an error.
const MostAttempts = 500

// Race runs each command of req in its own sandbox. All sandboxes are forked from one base before the first
// command starts. Race returns when every attempt has ended; an Attempt has the error of its own failure.
//
// If this process is killed, the kernel kills all processes in the sandboxes, and the next command removes
// the sandboxes. If ctx ends, Race returns ErrInterrupted and leaves no process and no sandbox. Other errors
// are those of [engine.Engine.New], and leave nothing either. Cost: one sandbox, and one fork for each
// further attempt.
func (rr *Coordinator) Race(ctx context.Context, req Request) (*Race, error) {
	if len(req.Attempts) == 0 {
		return nil, &errs.Error{Op: "racing", Path: req.Workspace, Kind: errs.ErrNotSupported, Err: errors.New("there is no command to try")}
	}
	if n := len(req.Attempts); n > MostAttempts {
		return nil, &errs.Error{
			Op: "racing", Path: req.Workspace, Kind: errs.ErrNotSupported,
			Err: fmt.Errorf("%d attempts are more than the %d that one race may have: each has a sandbox and files open", n, MostAttempts),
		}
	}
	places, err := rr.admitRace(ctx, req)
	if err != nil {
		return nil, err
	}
	defer closePlaces(places) //nolint:errcheck // of attempts that were not begun
	search := hostfs.SearchSecrets()
	sessions, err := rr.forkAll(ctx, req.Request, len(req.Attempts))
	if err != nil {
		return nil, err
	}
	// A person may change the workspace while the attempts run, and its state now is what they began with.
	defer rr.engine.Baseline.StartManifest(ctx, sessions[0].Record)()
	r := &Race{Workspace: req.Workspace, e: rr, sessions: sessions, changes: make([]*compare.Changes, len(sessions))}
	defer r.closeChanges()
	if t, ok := compare.WorkspaceTree(sessions[0].Record); ok {
		r.Taken, r.Frozen = t.Taken, t.Frozen
	}
	o, err := rr.outputsOf(req, sessions)
	if err == nil {
		defer o.close()
		r.Output = o.dir
		if err = r.run(ctx, req, o, search, places); err == nil {
			err = r.compare(ctx)
		}
	}
	if ctx.Err() != nil {
		err = &errs.Error{Op: "racing", Path: req.Workspace, Kind: errs.ErrInterrupted, Err: context.Cause(ctx)}
	}
	if err != nil {
		return nil, errors.Join(err, r.Close(context.WithoutCancel(ctx)))
	}
	return r, nil
}

func (r *Race) closeChanges() {
	for _, c := range r.changes {
		if c != nil {
			c.Close()
		}
	}
	r.changes = nil
}

// jobs returns how many attempts of the race may run their commands at the same time.
func (r *Request) jobs() int {
	if r.Jobs <= 0 {
		return len(r.Attempts)
	}
	return min(r.Jobs, len(r.Attempts))
}

// run starts the attempts of the race, at most as many at a time as req says, and waits for all of them.
// Their output goes to o; search looks for the secrets to hide, for the attempts that start at once; places
// are slots taken for them before. It returns an error if no attempt could run, unless the command itself was
// the reason.
func (r *Race) run(ctx context.Context, req Request, o *outputs, search *hostfs.Search, places []*admission.Slot) error {
	ctx, beat := context.WithCancelCause(ctx)
	defer beat(nil)
	jobs := req.jobs()
	m := &coordinator{Race: r, req: req, beat: beat}
	lanes := make([]*attemptRunner, len(req.Attempts))
	for i, c := range req.Attempts {
		lanes[i] = m.runner(i, c, o.files[i])
		if i < jobs { // the others start later, perhaps with more capacity
			lanes[i].search = search
		}
		if i < len(places) {
			lanes[i].place = places[i]
		}
	}
	next := make(chan *attemptRunner)
	var all sync.WaitGroup
	for range jobs {
		all.Go(func() {
			for l := range next {
				l.run(ctx)
			}
		})
	}
	for _, l := range lanes {
		next <- l
	}
	close(next)
	all.Wait()
	if req.Score != nil {
		r.Winner = r.best(req.Lower)
	}
	var command *engine.CommandError
	if err := lanes[0].err; err != nil && !errors.As(err, &command) && !slices.ContainsFunc(r.Attempts, func(a Attempt) bool { return a.State != Broken }) {
		return err
	}
	return nil
}

// best returns the number of the attempt with the best score among those that passed, the first of equal
// ones, or 0. With lower, the lowest score is the best.
func (r *Race) best(lower bool) (number int) {
	var best float64
	for _, a := range r.Attempts {
		if a.State != Passed || a.Score == nil {
			continue
		}
		if s := *a.Score; number == 0 || lower && s < best || !lower && s > best {
			number, best = a.Number, s
		}
	}
	return number
}

// A coordinator is the state of a running race that its attempts at the task, which run at the same time,
// share.
type coordinator struct {
	*Race
	req  Request
	beat context.CancelCauseFunc

	mu sync.Mutex
}

func (m *coordinator) runner(i int, c engine.Command, out attemptFiles) *attemptRunner {
	n := len(m.req.Attempts)
	env := append(append([]string{}, c.Env...), attemptVariable+"="+strconv.Itoa(i+1), attemptsVariable+"="+strconv.Itoa(n))
	c.Env, c.Stdin, c.TTY = env, nil, nil
	m.Attempts = append(m.Attempts, Attempt{Number: i + 1, Sandbox: m.sessions[i].Record.Name, Command: c.Args, State: Waiting, Output: out.command.Name()})
	if out.check != nil {
		m.Attempts[i].CheckOutput = out.check.Name()
	}
	return &attemptRunner{m: m, i: i, s: m.sessions[i], c: c, out: out}
}

// note changes the state of attempt i of the race, as callers see it, by the function change, under the lock,
// and reports the attempt to Request.Progress.
func (m *coordinator) note(i int, change func(a *Attempt)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.Attempts[i])
	if m.req.Progress != nil {
		m.req.Progress(m.Attempts[i])
	}
}

// passed notes that attempt i of the race has passed: its command and check succeeded. If the request has
// First set, it stops all other attempts.
func (m *coordinator) passed(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.req.First && m.Winner == 0 {
		m.Winner = i + 1
		m.beat(errBeaten)
	}
}

// level stores which protections of the isolation this host cannot give the sandboxes of the race. They are
// the same for all attempts.
func (m *coordinator) level(l engine.Level) {
	m.mu.Lock()
	m.Missing = l.Missing
	m.mu.Unlock()
}

// forkAll makes the n sandboxes of a race: one for the first attempt, and forks of its base for the others,
// in parallel. After an error no sandbox is left.
func (rr *Coordinator) forkAll(ctx context.Context, req hostfs.Request, n int) ([]*engine.Session, error) {
	prefix := req.Name
	if prefix == "" {
		prefix = catalog.NameFor(req.Workspace, catalog.NewID())
	}
	req.Name = prefix + "-1"
	first, intent, err := rr.engine.Sandboxes.Create(ctx, req, true)
	if err != nil {
		return nil, err
	}
	sessions := make([]*engine.Session, n)
	sessions[0] = &engine.Session{Record: first, Engine: rr.engine, Intent: intent}
	first.Lent = true // its base stays until a collection finds no sandbox with it
	failures := make([]error, n)
	failures[0] = rr.cat.Update(first)
	var all sync.WaitGroup
	for i := 1; i < n && failures[0] == nil; i++ {
		all.Go(func() {
			req := req
			req.Name = prefix + "-" + strconv.Itoa(i+1)
			sessions[i], failures[i] = rr.forkAnother(ctx, first, req)
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, errors.Join(errors.Join(failures...), rr.discardAll(context.WithoutCancel(ctx), sessions))
	}
	return sessions, nil
}

// forkAnother makes the sandbox of a further attempt of a race from the base of the sandbox first. It leaves
// out a tree whose filesystem was unmounted since.
func (rr *Coordinator) forkAnother(ctx context.Context, first *catalog.Record, req hostfs.Request) (*engine.Session, error) {
	rec, intent, err := rr.engine.Sandboxes.Intend(req, true)
	if err != nil {
		return nil, err
	}
	rec.Lent = true
	ids := make([]snapshot.ID, len(first.Trees))
	for i, t := range first.Trees {
		ids[i] = t.Base
		t.Fork = rec.NewFork()
		rec.Trees = append(rec.Trees, t)
	}
	err = rr.engine.Sandboxes.Register(ctx, rec, func() error {
		var there []catalog.Tree
		for i, t := range rec.Trees {
			err := rr.engine.Sandboxes.ForkAll(ctx, rec, rec.Trees[i:i+1], ids[i:i+1], []snapshot.ForkID{t.Fork})
			if err != nil && !passing(err, rec, t) {
				return err
			}
			if err == nil {
				there = append(there, t)
			}
		}
		rec.Trees = there
		return nil
	}, nil)
	if err != nil {
		rr.engine.Sandboxes.EndIfGone(intent, rec, err)
		return nil, err
	}
	return &engine.Session{Record: rec, Engine: rr.engine, Intent: intent}, nil
}

// passing reports whether err, the error of the tree t, only means that its filesystem has just been
// unmounted, and the workspace is not in it. The race then continues without the tree.
func passing(err error, rec *catalog.Record, t catalog.Tree) bool {
	return (errors.Is(err, errs.ErrNotFound) || errors.Is(err, errs.ErrNotSupported)) && !hostfs.Within(rec.Workspace, t.Path)
}

// admitRace takes the slots (permissions to run a sandbox) of the attempts that start first, if the request
// says to fail on a host without capacity. Otherwise it returns none.
func (rr *Coordinator) admitRace(ctx context.Context, req Request) (places []*admission.Slot, err error) {
	if !req.Admission.IfRoom {
		return nil, nil
	}
	for range req.jobs() {
		p, err := rr.engine.Supervise.AdmitNew(ctx, req.Request)
		if err != nil {
			return nil, errors.Join(err, closePlaces(places))
		}
		places = append(places, p)
	}
	return places, nil
}

func closePlaces(places []*admission.Slot) error {
	var failures []error
	for _, p := range places {
		failures = append(failures, p.Close())
	}
	return errors.Join(failures...)
}

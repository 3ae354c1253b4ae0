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

// A Request says which commands race, and what decides.
type Request struct {
	// Request is what the sandboxes are made from, one for each attempt, which waits
	// for room by itself where that is asked for. Each is
	// called Name, or what is made from the workspace's, with the attempt's number
	// behind it.
	hostfs.Request
	// Attempts are the commands. Their streams are not used: they read nothing, and
	// what they write goes to files. See [AttemptVariable].
	Attempts []engine.Command
	// Check, or nil, is run in an attempt's sandbox when its command has ended with
	// status 0, and Score, or nil, after that: it writes a number to its standard
	// output. Neither is part of the result: what they write is taken back.
	Check, Score *engine.Command
	// First stops all others when one has passed.
	First bool
	// Lower: the lowest score is the best one.
	Lower bool
	// Jobs is how many run at once; 0 is all.
	Jobs int
	// Timeout is how long an attempt may take with its check and its score; 0 is no
	// limit.
	Timeout time.Duration
	// Output is the directory that gets what the commands write. It is made; "" is
	// one in the state directory, where those of the last ten races are.
	Output string
	// Progress is told of every change of an attempt, one call at a time. May be nil.
	Progress func(Attempt)
}

// The variables that tell a command, its check and its score which attempt it is,
// from 1, and of how many.
const (
	AttemptVariable  = "SNAPFS_ATTEMPT"
	AttemptsVariable = "SNAPFS_ATTEMPTS"
)

// An AttemptState is how far an attempt has come.
type AttemptState string

// The states of an attempt. From Passed on they are final.
const (
	Waiting  AttemptState = "waiting"
	Running  AttemptState = "running"
	Checking AttemptState = "checking"
	Scoring  AttemptState = "scoring"
	Passed   AttemptState = "passed"
	Failed   AttemptState = "failed"    // the command, the check or the score
	TimedOut AttemptState = "timed out" // see RaceRequest.Timeout
	Stopped  AttemptState = "stopped"   // another one had passed
	Broken   AttemptState = "broken"    // it could not be run; Why says it
)

// Final reports whether an attempt in this state will have no other.
func (s AttemptState) Final() bool {
	return s != Waiting && s != Running && s != Checking && s != Scoring
}

// An Attempt is one of the commands of a race, and what came of it.
type Attempt struct {
	// Number is from 1.
	Number int `json:"attempt"`
	// Sandbox is the name of its sandbox.
	Sandbox string       `json:"sandbox"`
	Command []string     `json:"command"`
	State   AttemptState `json:"state"`
	// Why says what a state does not tell by itself, or is "".
	Why string `json:"why,omitempty"`
	// Ended is how the command ended, Checked how the check did; nil where it did not.
	Ended   *Ended `json:"ended,omitempty"`
	Checked *Ended `json:"checked,omitempty"`
	// Score is what it was given, nil where nothing was.
	Score *float64 `json:"score,omitempty"`
	// Started is when its processes were, and Took how long they ran, the check's
	// and the score's included.
	Started time.Time     `json:"started,omitzero"`
	Took    time.Duration `json:"took_ns"`
	// Size is what it changed; nil where it was not looked at.
	Size *ResultSize `json:"size,omitempty"`
	// Drift is how far the real workspace has moved since the base of all attempts;
	// nil where it was not looked at, or could not be found in time.
	Drift *ResultDrift `json:"drift,omitempty"`
	// Output holds what the command wrote, CheckOutput what the check and the score
	// did.
	Output      string `json:"output"`
	CheckOutput string `json:"check_output,omitempty"`
	// Kept: its sandbox stays.
	Kept bool `json:"kept"`
}

// Ended is how a command ended.
type Ended struct {
	// Status is as a shell tells it: 128 and the number of the signal that killed it.
	Status int    `json:"status"`
	Signal string `json:"signal,omitempty"`
}

// ResultSize is how much an attempt changed.
type ResultSize struct {
	// Paths of the workspace, those aside of which the time alone differs.
	Paths int `json:"paths"`
	// Added and Deleted are lines of texts.
	Added   int `json:"added_lines"`
	Deleted int `json:"deleted_lines"`
	// Unread: there are files among them that this user may not read, and whose
	// lines, with those of all that follow, are not counted.
	Unread bool `json:"unread,omitempty"`
	// Elsewhere is the number of paths outside the workspace.
	Elsewhere int `json:"elsewhere"`
}

// ResultDrift is how far the real workspace has moved.
type ResultDrift struct {
	Paths int `json:"paths"`
	// Both is how many of them the attempt has changed too.
	Both int `json:"both"`
}

// A Race is over: nothing runs in any of its sandboxes, which are there until Keep,
// Promote or Close says otherwise.
type Race struct {
	Workspace string `json:"workspace"`
	// Taken is the instant of the base of all attempts, Frozen whether it kept still.
	Taken  time.Time `json:"taken"`
	Frozen bool      `json:"frozen"`
	// Output is the directory with what the commands wrote.
	Output string `json:"output"`
	// Missing is what of the isolation could not be had, with a best effort.
	Missing  []string  `json:"missing,omitempty"`
	Attempts []Attempt `json:"attempts"`
	// Compared is how the results differ.
	Compared Comparison `json:"comparison"`
	// Winner is the number of the attempt that passed first, with RaceRequest.First,
	// or of the one with the best score, with a score; else 0.
	Winner int `json:"winner"`

	e        *Coordinator
	sessions []*engine.Session
	changes  []*compare.Changes // of each attempt, until they are compared; nil where unknown
}

// Passed are the numbers of the attempts that passed.
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

// MostAttempts is how many attempts a race may have: each keeps some ten descriptors open.
const MostAttempts = 500

// Race runs each command in a sandbox of its own, all of one base, which are made
// before the first command starts. It answers when all have ended. What goes wrong
// with one attempt is told by that attempt.
//
// Should this process be killed, everything inside dies with it, and the next
// command takes the sandboxes away. When ctx ends, nothing runs, and no sandbox is
// left: ErrInterrupted. Other errors are those of [Engine.New]; then too.
// Cost: that of one sandbox, and of a fork for each further one.
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
	real := hostfs.SearchSecrets()
	sessions, err := rr.forkAll(ctx, req.Request, len(req.Attempts))
	if err != nil {
		return nil, err
	}
	r := &Race{Workspace: req.Workspace, e: rr, sessions: sessions, changes: make([]*compare.Changes, len(sessions))}
	defer r.closeChanges()
	if t, ok := compare.HolderOf(sessions[0].Record); ok {
		r.Taken, r.Frozen = t.Taken, t.Frozen
	}
	o, err := rr.outputsOf(req, sessions)
	if err == nil {
		defer o.close()
		r.Output = o.dir
		if err = r.run(ctx, req, o, real, places); err == nil {
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

// jobs is how many attempts run at once.
func (r *Request) jobs() int {
	if r.Jobs <= 0 {
		return len(r.Attempts)
	}
	return min(r.Jobs, len(r.Attempts))
}

// run starts the attempts, as many at once as may be, and waits for all. That none
// of them could be run is an error, unless it is one of the command.
func (r *Race) run(ctx context.Context, req Request, o *outputs, real func() hostfs.SecretPaths, places []*admission.Slot) error {
	ctx, beat := context.WithCancelCause(ctx)
	defer beat(nil)
	jobs := req.jobs()
	m := &coordinator{Race: r, req: req, beat: beat}
	lanes := make([]*attemptRunner, len(req.Attempts))
	for i, c := range req.Attempts {
		lanes[i] = m.runner(i, c, o.files[i])
		if i < jobs { // the others start later, when there may be more
			lanes[i].real = real
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

// best is the number of the attempt with the best score, the first of equal ones;
// 0 where none has passed.
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

// A coordinator watches over a race while it runs.
type coordinator struct {
	*Race
	req  Request
	beat context.CancelCauseFunc

	mu sync.Mutex
}

func (m *coordinator) runner(i int, c engine.Command, out attemptFiles) *attemptRunner {
	n := len(m.req.Attempts)
	env := append(append([]string{}, c.Env...), AttemptVariable+"="+strconv.Itoa(i+1), AttemptsVariable+"="+strconv.Itoa(n))
	c.Env, c.Stdin, c.TTY = env, nil, nil
	m.Attempts = append(m.Attempts, Attempt{Number: i + 1, Sandbox: m.sessions[i].Record.Name, Command: c.Args, State: Waiting, Output: out.command.Name()})
	if out.check != nil {
		m.Attempts[i].CheckOutput = out.check.Name()
	}
	return &attemptRunner{m: m, i: i, s: m.sessions[i], c: c, out: out}
}

// note changes an attempt, and tells of it.
func (m *coordinator) note(i int, change func(a *Attempt)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.Attempts[i])
	if m.req.Progress != nil {
		m.req.Progress(m.Attempts[i])
	}
}

// passed decides about an attempt that has come through: the first one ends the
// others, where it is to.
func (m *coordinator) passed(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.req.First && m.Winner == 0 {
		m.Winner = i + 1
		m.beat(errBeaten)
	}
}

// level notes the isolation that is in force: the same for all.
func (m *coordinator) level(l engine.Level) {
	m.mu.Lock()
	m.Missing = l.Missing
	m.mu.Unlock()
}

// forkAll makes the sandboxes of a race: a sandbox for the first attempt, and of its
// base one for each other, all at once. After an error there is none.
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
	first.Lent = true // so its base stays until a collection finds nobody who has it
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

// forkAnother makes a further sandbox of the base of first. Trees that have vanished
// since are left out, as growAll does.
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

// passing: what is wrong with a tree is that its filesystem has just gone, and the
// sandbox is not about it.
func passing(err error, rec *catalog.Record, t catalog.Tree) bool {
	return (errors.Is(err, errs.ErrNotFound) || errors.Is(err, errs.ErrNotSupported)) && !hostfs.Within(rec.Workspace, t.Path)
}

// admitRace takes the places of the attempts that start first, where a race is to be
// refused unless there is room for these. Otherwise: none.
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

package engine

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/limits"
)

// An allowance holds the processes of one box to a sandbox's limits, and knows
// which of them was hit.
type allowance struct {
	group *limits.Group

	// still is held for writing while the box stands still, and for reading while
	// something is started in it. box is nil until it has started.
	still sync.RWMutex
	box   *isolate.Box

	mu  sync.Mutex
	p   catalog.Limits
	hit *catalog.Hit
}

// startAllowance makes what holds the limits of a policy, which the caller closes.
// With count, what the processes use is counted without any limit too, and one may
// be set later. Errors: those of limits.Start, as the contract names them.
func (e *Engine) startAllowance(ctx context.Context, workspace string, p catalog.Policy, count bool) (*allowance, error) {
	a := &allowance{p: p.Limits}
	o := limits.Options{BestEffort: p.BestEffort, Count: count, Pause: a.pause, Resume: a.resume}
	l := forProcesses(p.Limits)
	if l.ReadRate+l.WriteRate+l.ReadOps+l.WriteOps > 0 || count {
		o.Devices = e.disks(workspace)
	}
	group, err := limits.Start(ctx, catalog.NewID(), l, o)
	if err != nil && count && l == (limits.Limits{}) { // counting is no promise
		group, err = limits.Start(ctx, catalog.NewID(), l, limits.Options{})
	}
	if err != nil {
		return nil, limitError(err)
	}
	a.group = group
	return a, nil
}

// attach tells what holds the limits which box it is, once that has started.
func (a *allowance) attach(box *isolate.Box) error {
	a.box = box
	if err := a.group.Attach(box.PID()); err != nil {
		return limitError(err)
	}
	return nil
}

// pause has the box stand still, for the limit of processors where no control group
// holds it. Nothing is started in it until resume.
func (a *allowance) pause(ctx context.Context) error {
	a.still.Lock()
	err := a.box.Freeze(ctx)
	if err != nil {
		a.still.Unlock()
	}
	return err
}

func (a *allowance) resume(ctx context.Context) error {
	err := a.box.Thaw(ctx)
	if err == nil {
		a.still.Unlock()
	}
	return err
}

// disks are those that a sandbox reads and writes, as far as that can be told.
func (e *Engine) disks(workspace string) (found []uint64) {
	for _, dir := range []string{workspace, e.cat.Dir()} {
		if some, err := limits.DisksOf(dir); err == nil {
			found = append(found, some...)
		}
	}
	return found
}

// forProcesses is the part of the limits that is about processes.
func forProcesses(l catalog.Limits) limits.Limits {
	return limits.Limits{
		CPUs: l.CPUs, Memory: l.Memory, PIDs: l.PIDs, Files: l.Files, CPUTime: l.CPUTime,
		ReadRate: l.ReadRate, WriteRate: l.WriteRate, ReadOps: l.ReadOps, WriteOps: l.WriteOps,
	}
}

// limitError is an error of limits as one of the contract's.
func limitError(err error) error {
	var e *limits.Error
	if !errors.As(err, &e) {
		return err
	}
	kind := snapshot.KindOf(e.Err)
	for _, k := range []struct{ theirs, ours error }{
		{limits.ErrInvalid, snapshot.ErrNotSupported},
		{limits.ErrNotSupported, snapshot.ErrNotSupported},
		{limits.ErrDenied, snapshot.ErrDenied},
		{limits.ErrBusy, snapshot.ErrBusy},
		{limits.ErrClosed, snapshot.ErrInterrupted},
		{limits.ErrInterrupted, snapshot.ErrInterrupted},
	} {
		if errors.Is(e.Kind, k.theirs) {
			kind = k.ours
		}
	}
	return &snapshot.Error{Op: e.Op, Path: e.Path, Kind: kind, Err: e.Err, Hints: e.Hints}
}

// bind has a box be held by the allowance.
func (a *allowance) bind(s *isolate.Spec) {
	s.Cgroups = a.group.Cgroups()
	for _, r := range a.group.Rlimits() {
		s.Rlimits = append(s.Rlimits, isolate.Rlimit{Resource: r.Resource, Cur: r.Cur, Max: r.Max})
	}
}

// note keeps the first limit that something was ended for.
func (a *allowance) note(h catalog.Hit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hit == nil {
		h.When = time.Now()
		a.hit = &h
	}
}

// struck is the limit that something was ended for, or that was hit last, or nil.
func (a *allowance) struck() *catalog.Hit {
	c, ok := a.group.Hit()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hit == nil && ok {
		hit := &catalog.Hit{Limit: partName(c.Part), Value: c.Value, Text: c.Text, When: time.Now()}
		if c.Killed {
			a.hit = hit
		}
		return hit
	}
	return a.hit
}

// partName is what a limit of processes is called by the flags.
func partName(p limits.Part) string {
	switch p {
	case limits.PartReadRate:
		return "io-read"
	case limits.PartWriteRate:
		return "io-write"
	case limits.PartReadOps:
		return "io-read-ops"
	case limits.PartWriteOps:
		return "io-write-ops"
	}
	return string(p)
}

// set changes the limits of a box that runs.
func (a *allowance) set(ctx context.Context, l catalog.Limits) error {
	if err := a.group.Set(ctx, forProcesses(l)); err != nil {
		return limitError(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.p = l
	return nil
}

// close gives the groups back, after the box has ended.
func (a *allowance) close(ctx context.Context) error {
	if err := a.group.Close(ctx); err != nil {
		return limitError(err)
	}
	return nil
}

// leave is how long a command has after it was asked to end.
const leave = 2 * time.Second

// within ends a command that takes longer than the limit, first politely. The
// answer is to be called when it has ended.
func (a *allowance) within(p *isolate.Process) (ended func()) {
	a.mu.Lock()
	limit := a.p.Time
	a.mu.Unlock()
	if limit == 0 {
		return func() {}
	}
	var mu sync.Mutex
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(limit, func() {
		a.note(catalog.Hit{
			Limit: "time", Value: units.FormatDuration(limit), Text: "time: the command took longer than " + units.FormatDuration(limit),
		})
		p.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		mu.Lock()
		defer mu.Unlock()
		timer = time.AfterFunc(leave, func() {
			p.Signal(syscall.SIGKILL) //nolint:errcheck // it may have ended
		})
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
	}
}

// ends is when a sandbox's time is over, the zero time for never.
func ends(rec *catalog.Record) time.Time {
	if rec.Policy.Limits.TTL == 0 {
		return time.Time{}
	}
	return rec.Created.Add(rec.Policy.Limits.TTL)
}

// refuseOverdue: nothing is started in a sandbox whose time is over.
func refuseOverdue(rec *catalog.Record) error {
	end := ends(rec)
	if end.IsZero() || time.Now().Before(end) {
		return nil
	}
	return &snapshot.Error{
		Op: "entering", Path: rec.Name, Kind: snapshot.ErrDenied,
		Err:   errors.New("its time was over at " + end.Format(time.RFC3339) + " (ttl " + units.FormatDuration(rec.Policy.Limits.TTL) + ")"),
		Hints: []string{"snapfs limits " + rec.Name + " --set ttl=none", "snapfs promote " + rec.Name, "snapfs rm " + rec.Name},
	}
}

// overdue ends a box when the sandbox's time is over. The answer is to be called
// when it has ended.
func (h *host) overdue(rec *catalog.Record) (ended func()) {
	end := ends(rec)
	if end.IsZero() {
		return func() {}
	}
	timer := time.AfterFunc(time.Until(end), func() {
		ttl := units.FormatDuration(rec.Policy.Limits.TTL)
		h.allowed.note(catalog.Hit{
			Limit: "ttl", Value: ttl, Text: "ttl: the sandbox has lived for " + ttl,
		})
		h.box.Close(context.Background()) //nolint:errcheck // whoever waits for its end does the rest
	})
	return func() { timer.Stop() }
}

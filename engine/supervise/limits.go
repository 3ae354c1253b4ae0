package supervise

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/limits"
)

// A resources holds the processes of one box to a sandbox's limits, and knows
// which of them was hit.
type resources struct {
	Group *limits.Group
	// place is the sandbox's on this host.
	slot *admission.Slot

	// still is held for writing while the box is made to stand still for a moment,
	// or for good, and for reading while something is started in it. box is nil until
	// it has started.
	startLock sync.RWMutex
	container *isolate.Container
	// paused is why the box stands still until further notice, nil where it does
	// not. It changes under still, held for writing.
	paused atomic.Pointer[catalog.LimitHit]

	clock countdowns

	disk func() (used snapshot.DiskLimit, known bool) // or nil, before it has started

	mu     sync.Mutex
	limits catalog.Limits
	hit    *catalog.LimitHit
}

// startResources makes what holds the limits of a policy, which the caller closes.
// With count, what the processes use is counted without any limit too, and one may
// be set later. place is that of the box, and is given back with it, or where this does
// not work; nil: one that is given without waiting.
// Errors: those of limits.Start, as the contract names them; of [Engine.admit].
func (sv *Manager) startResources(ctx context.Context, workspace string, p catalog.Policy, count bool, place *admission.Slot) (*resources, error) {
	if place == nil {
		var err error
		if place, err = sv.Admit(ctx, p.Limits, Admission{}); err != nil {
			return nil, err
		}
	}
	a := &resources{limits: p.Limits, slot: place}
	o := limits.Options{BestEffort: p.BestEffort, Count: count, Pause: a.pause, Resume: a.resume}
	l := hostfs.ForProcesses(p.Limits)
	if l.ReadRate+l.WriteRate+l.ReadOps+l.WriteOps > 0 || count {
		o.Devices = sv.disks(workspace)
	}
	group, err := limits.Start(ctx, catalog.NewID(), l, o)
	if err != nil && count && l == (limits.Limits{}) { // counting is no promise
		group, err = limits.Start(ctx, catalog.NewID(), l, limits.Options{})
	}
	if err != nil {
		return nil, errors.Join(err, place.Close())
	}
	a.Group = group
	return a, nil
}

// attach tells what holds the limits which box it is, once that has started.
func (a *resources) attach(box *isolate.Container) error {
	a.container = box
	if err := a.Group.Attach(box.PID()); err != nil {
		return err
	}
	return nil
}

// pause has the box stand still, for the limit of processors where no control group
// holds it. Nothing is started in it until resume.
func (a *resources) pause(ctx context.Context) error {
	a.startLock.Lock()
	if a.paused.Load() != nil {
		return nil // it does already, and goes on doing so after resume
	}
	err := a.container.Freeze(ctx)
	if err != nil {
		a.startLock.Unlock()
	}
	return err
}

func (a *resources) resume(ctx context.Context) error {
	if a.paused.Load() == nil {
		if err := a.container.Thaw(ctx); err != nil {
			return err
		}
	}
	a.startLock.Unlock()
	return nil
}

// lockFrozen locks still for writing. Whoever has made the box stand still for a moment
// may take long about it, and is waited for no longer than ctx lasts.
func (a *resources) lockFrozen(ctx context.Context) error {
	for !a.startLock.TryLock() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// pauseFor has the box stand still until goOn: nothing is started in it, and the time of
// its commands does not go by. An error leaves it as it was.
func (a *resources) pauseFor(ctx context.Context, why catalog.LimitHit, unless func() bool) (bool, error) {
	if err := a.lockFrozen(ctx); err != nil {
		return false, err
	}
	defer a.startLock.Unlock()
	if unless() {
		return false, nil
	}
	if a.paused.Load() == nil {
		if err := a.container.Freeze(ctx); err != nil {
			return false, err
		}
		a.clock.stop()
	}
	why.When = time.Now()
	a.paused.Store(&why)
	return true, nil
}

// resumeFrom lets the box go on where it stands still for a limit.
func (a *resources) resumeFrom(ctx context.Context, limit string) (bool, error) {
	if err := a.lockFrozen(ctx); err != nil {
		return false, err
	}
	defer a.startLock.Unlock()
	if why := a.paused.Load(); why == nil || why.Limit != limit {
		return false, nil
	}
	if err := a.container.Thaw(ctx); err != nil {
		return false, err
	}
	a.paused.Store(nil)
	a.clock.resume()
	return true, nil
}

// disks are those that a sandbox reads and writes, as far as that can be told.
func (sv *Manager) disks(workspace string) (found []uint64) {
	for _, dir := range []string{workspace, sv.cat.Dir()} {
		if some, err := limits.DisksOf(dir); err == nil {
			found = append(found, some...)
		}
	}
	return found
}

// bind has a box be held by the allowance.
func (a *resources) bind(s *isolate.Spec) {
	s.Cgroups = a.Group.Cgroups()
	for _, r := range a.Group.Rlimits() {
		s.Rlimits = append(s.Rlimits, isolate.Rlimit{Resource: r.Resource, Cur: r.Cur, Max: r.Max})
	}
}

// note keeps the first limit that something was ended for.
func (a *resources) note(h catalog.LimitHit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hit == nil {
		h.When = time.Now()
		a.hit = &h
	}
}

// limitHit is the limit that something was ended for, or that was hit last, or that it
// stands still for, or nil.
func (a *resources) limitHit() *catalog.LimitHit {
	c, ok := a.Group.LimitHit()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hit == nil && ok {
		hit := &catalog.LimitHit{Limit: string(c.Part), Value: c.Value, Text: c.Text, When: time.Now()}
		if c.Killed {
			a.hit = hit
		}
		return hit
	}
	if a.hit != nil {
		return a.hit
	}
	if why := a.paused.Load(); why != nil {
		return why
	}
	return a.full()
}

// killed: a limit was hit for which all that is in the box is killed.
func (a *resources) killed() bool {
	c, hit := a.Group.LimitHit()
	return hit && c.Killed
}

// unenforced says which of the limits limit nothing on this host.
func (a *resources) unenforced() (notes []string) {
	for _, h := range a.Group.Level() {
		if h.Moot {
			notes = append(notes, string(h.Part)+" "+h.Value+": "+h.Note)
		}
	}
	return notes
}

// startError is what went wrong while a box was started, or the limit that it was ended
// for.
func (a *resources) startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	hit := a.limitHit()
	if hit == nil {
		return err
	}
	return &errs.Error{
		Op: "starting", Kind: ErrLimit,
		Err: errors.New(hit.Text + " (" + hit.Limit + " " + hit.Value + "), before the command began"),
	}
}

// set changes the limits of a box that runs, and answers with those that it had, which
// it has still after an error.
func (a *resources) set(ctx context.Context, l catalog.Limits) (was catalog.Limits, err error) {
	a.mu.Lock()
	was = a.limits
	a.mu.Unlock()
	if err := a.Group.Set(ctx, hostfs.ForProcesses(l)); err != nil {
		return was, err
	}
	if err := a.slot.Set(slotRequest(l)); err != nil {
		return was, errors.Join(err, a.Group.Set(ctx, hostfs.ForProcesses(was)))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = l
	return was, nil
}

// Close gives the groups and the place back, after the box has ended.
func (a *resources) Close(ctx context.Context) error {
	return errors.Join(a.Group.Close(ctx), a.slot.Close())
}

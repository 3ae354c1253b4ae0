package resources

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

// ErrLimit (status 124) is the error kind of a command that did not start because a limit ended the sandbox.
var ErrLimit = errs.NewStatus(124, "a limit was hit")

// Resources enforces the resource limits of a running sandbox on its container, and stores which limit was hit. It
// also holds the sandbox's admission slot.
type Resources struct {
	// Group is nil if there is neither a limit nor anything to count.
	Group *limits.Group
	// slot is the sandbox's admission slot.
	slot *admission.Slot

	// StartLock is held for reading while a command starts, and for writing while the container is
	// frozen or pauses or resumes.
	StartLock sync.RWMutex
	// container is the sandbox's container, nil until it has started.
	container *isolate.Container
	// paused is the limit that the container is paused for, or nil. It changes only under StartLock, held for writing.
	paused atomic.Pointer[catalog.LimitHit]

	clock countdowns

	// Disk returns the use of the sandbox's disk limit. It is nil before the container has started.
	Disk func() (used snapshot.DiskLimit, known bool)

	mu     sync.Mutex
	limits catalog.Limits
	hit    *catalog.LimitHit
}

// Start creates the control groups for a policy's limits; the caller closes the Resources. With count, usage is
// counted even without a limit, and limits can be set later. I/O limits apply to the block devices of dirs, as far as
// they can be found. Start takes over the sandbox's admission slot, which may be nil if [Resources.Own] follows; after
// an error the slot is closed. Errors: those of limits.Start.
func Start(ctx context.Context, p catalog.Policy, count bool, slot *admission.Slot, dirs ...string) (*Resources, error) {
	a := &Resources{limits: p.Limits, slot: slot}
	o := limits.Options{BestEffort: p.BestEffort, Count: count, Pause: a.pause, Resume: a.resume, Stored: a.stored}
	l := hostfs.ForProcesses(p.Limits)
	if l == (limits.Limits{}) && !count {
		return a, nil
	}
	if l.ReadRate+l.WriteRate+l.ReadOps+l.WriteOps > 0 || count {
		o.Devices = disks(dirs)
	}
	group, err := limits.Start(ctx, catalog.NewID(), l, o)
	if err != nil && count && l == (limits.Limits{}) { // usage counts are best effort
		group, err = limits.Start(ctx, catalog.NewID(), l, limits.Options{})
	}
	if err != nil {
		return nil, errors.Join(err, slot.Close())
	}
	a.Group = group
	return a, nil
}

// Own takes over the admission slot of the sandbox, after a [Start] without one.
func (a *Resources) Own(slot *admission.Slot) { a.slot = slot }

// Attach stores the container that has just started, and subjects it to limits enforced by polling.
func (a *Resources) Attach(container *isolate.Container) error {
	a.container = container
	if a.Group == nil {
		return nil
	}
	return a.Group.Attach(container.PID())
}

// pause freezes the container for a moment, to enforce a CPU limit where there are no control groups. Until resume no
// command can start.
func (a *Resources) pause(ctx context.Context) error {
	a.StartLock.Lock()
	if a.paused.Load() != nil {
		return nil // already paused, and stays so after resume
	}
	err := a.container.Freeze(ctx)
	if err != nil {
		a.StartLock.Unlock()
	}
	return err
}

// resume thaws the container after pause, unless the sandbox is paused because it reached a time limit.
func (a *Resources) resume(ctx context.Context) error {
	if a.paused.Load() == nil {
		if err := a.container.Thaw(ctx); err != nil {
			return err
		}
	}
	a.StartLock.Unlock()
	return nil
}

// stored returns how many bytes the container's filesystems in memory hold, and their devices; nothing once it has
// ended. They count for the memory limit.
func (a *Resources) stored() (bytes int64, devices []uint64) {
	bytes, devices, _ = a.container.Stored()
	return bytes, devices
}

// Paused returns the limit that the container is paused for, or nil.
func (a *Resources) Paused() *catalog.LimitHit { return a.paused.Load() }

// lockFrozen locks StartLock for writing, so that no command can start. It gives up with an error when ctx ends,
// because a client that has frozen the container may hold the lock for long.
func (a *Resources) lockFrozen(ctx context.Context) error {
	for !a.StartLock.TryLock() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// PauseFor pauses the container because the sandbox reached the limit why, until ResumeFrom: no command can start,
// and time limits of commands stop. It does nothing and returns false if unless returns true. An error leaves the
// container as it was.
func (a *Resources) PauseFor(ctx context.Context, why catalog.LimitHit, unless func() bool) (bool, error) {
	if err := a.lockFrozen(ctx); err != nil {
		return false, err
	}
	defer a.StartLock.Unlock()
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

// ResumeFrom resumes the container if it is paused for the named limit, and reports whether it did so.
func (a *Resources) ResumeFrom(ctx context.Context, limit string) (bool, error) {
	if err := a.lockFrozen(ctx); err != nil {
		return false, err
	}
	defer a.StartLock.Unlock()
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

// disks returns the block devices of dirs, to which I/O limits apply, as far as they can be found.
func disks(dirs []string) (found []uint64) {
	for _, dir := range dirs {
		if some, err := limits.DisksOf(dir); err == nil {
			found = append(found, some...)
		}
	}
	return found
}

// Bind adds the sandbox's control groups and rlimits to the spec from which its container starts.
func (a *Resources) Bind(s *isolate.Spec) {
	if a.Group == nil {
		return
	}
	s.Cgroups = a.Group.Cgroups()
	for _, r := range a.Group.Rlimits() {
		s.Rlimits = append(s.Rlimits, isolate.Rlimit{Resource: r.Resource, Cur: r.Cur, Max: r.Max})
	}
}

// Note stores h as the limit that ended a process of the sandbox, unless one is stored already.
func (a *Resources) Note(h catalog.LimitHit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hit == nil {
		h.When = time.Now()
		a.hit = &h
	}
}

// LimitHit returns the limit that ended a process of the sandbox; if none did, the last limit that was hit, else the
// limit that the sandbox is paused for, else a full disk, or nil.
func (a *Resources) LimitHit() *catalog.LimitHit {
	var c limits.LimitHit
	ok := false
	if a.Group != nil {
		c, ok = a.Group.LimitHit()
	}
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

// Killed reports whether the sandbox hit a limit, such as memory, at which its whole container is killed.
func (a *Resources) Killed() bool {
	if a.Group == nil {
		return false
	}
	c, hit := a.Group.LimitHit()
	return hit && c.Killed
}

// Unenforced returns a notice for each limit that this host cannot enforce.
func (a *Resources) Unenforced() (notes []string) {
	if a.Group == nil {
		return nil
	}
	for _, h := range a.Group.Level() {
		if h.Moot {
			notes = append(notes, string(h.Part)+" "+h.Value+": "+h.Note)
		}
	}
	return notes
}

// StartError returns the error of a container or command that failed to start with err. If the sandbox hit a limit,
// that is the cause, and StartError returns an error that names it.
func (a *Resources) StartError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	hit := a.LimitHit()
	if hit == nil {
		return err
	}
	return &errs.Error{
		Op: "starting", Kind: ErrLimit,
		Err: errors.New(hit.Text + " (" + hit.Limit + " " + hit.Value + "), before the command began"),
	}
}

// SlotRequest returns the memory, disk space and CPUs of the host that admission reserves for a sandbox with
// these limits.
func SlotRequest(l catalog.Limits) admission.Request {
	return admission.Request{Memory: l.Memory, Disk: l.Disk, Processors: l.CPUs}
}

// Set gives the running sandbox the limits l and returns the previous ones, which still apply after an error.
func (a *Resources) Set(ctx context.Context, l catalog.Limits) (was catalog.Limits, err error) {
	a.mu.Lock()
	was = a.limits
	a.mu.Unlock()
	if a.Group == nil {
		return was, errs.New("setting limits", "", errs.ErrNotSupported, "the sandbox was started without limits")
	}
	if err := a.Group.Set(ctx, hostfs.ForProcesses(l)); err != nil {
		return was, err
	}
	if err := a.slot.Set(SlotRequest(l)); err != nil {
		return was, errors.Join(err, a.Group.Set(ctx, hostfs.ForProcesses(was)))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = l
	return was, nil
}

// Close removes the sandbox's control groups and frees its admission slot. The container must have ended.
func (a *Resources) Close(ctx context.Context) error {
	var err error
	if a.Group != nil {
		err = a.Group.Close(ctx)
	}
	return errors.Join(err, a.slot.Close())
}

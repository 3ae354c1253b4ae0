package supervise

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/supervise/ahead"
	"github.com/snapfs/snapfs/engine/supervise/standby"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/run"
)

// readyFD and lockFD are the descriptors by which a supervisor inherits a pipe and the sandbox's lock from the
// process that starts it. The supervisor writes once to the pipe: "ready" and its notices, with a NUL between, or an
// error. It holds the lock until then, so that no second supervisor starts if its parent is killed.
const readyFD, lockFD = 3, 4

// slotFD is the descriptor number of the admission slot (share of the host) that a supervisor inherits.
const slotFD = 5

// firstCommandTimeout is how long a new supervisor waits for its first command. Then it ends, because the process
// that started it was probably killed.
const firstCommandTimeout = 10 * time.Second

// spawnSupervisor starts a supervisor process for a sandbox that has none and waits until it serves requests. Then it
// reloads h, because the supervisor has entered itself there. The caller holds the sandbox's lock, so that the
// supervisor cannot end before its first request. The supervisor takes over the admission slot; if slot is nil, the
// sandbox is admitted at once.
func (sv *Manager) spawnSupervisor(ctx context.Context, h *catalog.Locked, slot *admission.Slot) (err error) {
	if len(sv.program) == 0 {
		return &errs.Error{Op: "entering", Path: h.Name, Kind: errs.ErrNotSupported, Err: errors.New("this program has no supervisor command")}
	}
	if err := sv.Sync(ctx, h); err != nil { // in case the last supervisor was killed
		return err
	}
	if !slot.Held() {
		if slot, err = sv.Admit(ctx, h.Policy.Limits, Admission{}); err != nil {
			return err
		}
		defer sv.ReleaseSlot(slot) // unless the supervisor has taken it over
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	log, err := os.OpenFile(filepath.Join(sv.cat.Path(h.Name), "keeper.log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errors.Join(err, theirs.Close())
	}
	defer log.Close()
	switch err = fault.Point(ctx, "start a supervisor"); {
	case err == nil && sv.standby != nil:
		err = sv.standby.Start(h.Name, log, theirs, h.LockFile(), slot.File())
	case err == nil:
		args := append(append([]string{}, sv.program...), sv.cat.Dir(), h.Name)
		err = run.Detached(args, log, theirs, h.LockFile(), slot.File())
	}
	theirs.Close()
	if err != nil {
		return errs.With("starting a supervisor", h.Name, err)
	}
	defer context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Now()) })() //nolint:errcheck // pipes support deadlines
	said, err := io.ReadAll(ready)
	if errors.Is(err, os.ErrDeadlineExceeded) { // the supervisor ends when it finds the pipe closed
		return &errs.Error{Op: "starting a supervisor", Path: h.Name, Kind: errs.ErrInterrupted, Err: ctx.Err()}
	}
	if err != nil {
		return err
	}
	notes, up := strings.CutPrefix(string(said), "ready")
	if !up {
		return spawnError(h.Name, said)
	}
	slot.HandOver()
	for note := range strings.SplitSeq(notes, "\x00") {
		if note != "" {
			sv.notice(note)
		}
	}
	return h.Reload() // the supervisor has registered itself
}

// spawnError returns the error of a supervisor that failed to start. said is its message on the pipe; one that cannot
// be read means that the supervisor was killed.
func spawnError(name string, said []byte) error {
	var r refusal
	if exactjson.Decode(said, &r) != nil { // the supervisor was killed
		return &errs.Error{Op: "starting", Path: name, Kind: errs.ErrInterrupted, Err: errors.New("the supervisor of the sandbox ended at once")}
	}
	err := r.err()
	err.Op, err.Path, err.Kind = "starting", name, cmp.Or(err.Kind, errs.ErrNotSupported)
	return err
}

// Supervise is the main function of a supervisor process: it starts the sandbox's container, serves clients, and
// returns when the last process inside has ended. The parent process, which holds the sandbox's lock, waits for a
// message on the pipe that is descriptor 3 here.
func (sv *Manager) Supervise(ctx context.Context, name string) error {
	return sv.SuperviseJob(ctx, standby.Job{Name: name, Ready: readyFD, Lock: lockFD, Slot: slotFD}, nil)
}

// SuperviseJob is [Manager.Supervise] in a process that supervises one sandbox after another. begun, or nil, may hold
// the beginning of the container. After nil, nothing of the sandbox is left in this process; an error may leave
// something.
func (sv *Manager) SuperviseJob(ctx context.Context, job standby.Job, begun *ahead.Container) error {
	name, ready := job.Name, os.NewFile(uintptr(job.Ready), "ready")
	refuse := func(err error) error {
		msg, _ := exactjson.Encode(refusalOf(err))
		ready.Write(msg) //nolint:errcheck // the parent may be gone; the log has it too
		ready.Close()
		return err
	}
	held, err := sv.cat.Inherit(job.Lock, name)
	if err != nil {
		return refuse(err)
	}
	defer held.Release()
	slot, err := admission.Inherit(job.Slot)
	if err != nil {
		return refuse(err)
	}
	intent, err := sv.cat.Begin(catalog.Supervising, name, held.ID)
	if err != nil {
		return refuse(errors.Join(err, slot.Close()))
	}
	h, err := sv.startServing(ctx, held, slot, begun)
	if err != nil {
		return refuse(errors.Join(err, intent.End()))
	}
	held.Release()
	_, err = ready.WriteString("ready" + strings.Join(h.notes, "\x00"))
	if err = errors.Join(err, ready.Close()); err != nil && h.calls.Load() == 0 { // the parent was killed
		_, err = sv.endIdle(ctx, name, h)
		return errors.Join(err, intent.End())
	}
	return errors.Join(sv.serveUntilIdle(ctx, name, h), intent.End())
}

// startServing starts the sandbox's container, for which begun may hold the beginning, and opens the socket on which
// this supervisor serves clients. It enters this process in the sandbox's catalogue entry, and takes over the
// admission slot.
func (sv *Manager) startServing(ctx context.Context, held *catalog.Locked, slot *admission.Slot, begun *ahead.Container) (*Supervisor, error) {
	self, err := proc.Self()
	if err = errors.Join(err, policy.BoundBySite(&held.Policy)); err != nil {
		return nil, errors.Join(err, slot.Close())
	}
	before := *held.Record
	held.Supervisor, held.Untouched = &self, false
	held.RecordAge(catalog.Now())
	saved := held.StartSave() // the disk takes as long as the container
	secrets, reading := hostfs.SearchSecrets(), sv.baseline.StartReading(ctx, &before)
	var h *Supervisor
	prepared, allowed, err := sv.prepareFirst(ctx, held.Record, slot, begun)
	if err == nil {
		h, _, err = sv.Start(ctx, held.Record, prepared, allowed, secrets, nil)
	}
	if err == nil {
		h.timers = append(h.timers, reading.Stop)
		h.cancelReading = reading.Cancel
		h.record = func() { sv.recordOriginals(ctx, held.Name, held.ID) }
		if err = fault.Point(ctx, "let commands in"); err == nil {
			err = sv.baseline.OpenWindow(ctx, &before, reading)
		}
		if err == nil {
			err = sv.serve(h, held.Record)
		}
	} else {
		reading.Stop()
	}
	serr := saved()
	if err == nil && serr == nil {
		return h, nil
	}
	if h != nil {
		err = errors.Join(err, h.Close(ctx))
	}
	if serr == nil {
		held.Supervisor = nil
		serr = held.Save() // also the proof of a failed self-test
	}
	return nil, errors.Join(err, serr)
}

// recordTimeout bounds how long a command's status waits while the originals of the files that the sandbox changed
// are stored. Those not stored by then are stored when the container ends.
const recordTimeout = 2 * time.Second

// recordOriginals stores the original bytes, on a live base, of the files that the running sandbox name, of
// this id, has changed so far. It returns after recordTimeout at the latest, also while another process holds
// the baseline's lock.
func (sv *Manager) recordOriginals(ctx context.Context, name, id string) {
	soon, cancel := context.WithTimeout(ctx, recordTimeout)
	go func() {
		defer cancel()
		if rec, err := sv.cat.Get(name); err == nil && rec.ID == id {
			sv.baseline.Record(soon, rec)
		}
	}()
	<-soon.Done()
}

// serveUntilIdle waits until no process runs in the sandbox, then ends its container. It does that under the
// sandbox's lock, so that no command can arrive meanwhile.
func (sv *Manager) serveUntilIdle(ctx context.Context, name string, h *Supervisor) error {
	started := time.After(firstCommandTimeout)
	for h.alive() && ctx.Err() == nil {
		select {
		case <-h.Container.Done():
		case <-h.Container.Idle():
		case <-ctx.Done():
		case <-started:
			if h.calls.Load() > 0 {
				continue // a command runs
			}
		}
		done, err := sv.endIdle(ctx, name, h)
		if done || err != nil {
			return err
		}
	}
	return h.Close(context.WithoutCancel(ctx))
}

// endIdle ends a container in which nothing runs, under the sandbox's lock, and returns true. It returns false if a
// command arrived before it got the lock. It also removes an expired sandbox and takes a postponed snapshot. It leaves
// a sandbox that is being removed as it is.
func (sv *Manager) endIdle(ctx context.Context, name string, h *Supervisor) (done bool, err error) {
	ctx = context.WithoutCancel(ctx)
	held, err := sv.cat.Lock(ctx, name)
	if err != nil && !errors.Is(err, errs.ErrNotFound) {
		return true, errors.Join(err, h.Close(ctx))
	}
	if err == nil {
		defer held.Release()
	}
	if err != nil || !h.reachable() { // another command has run Sync, or removed the sandbox
		return true, h.Close(ctx)
	}
	if h.alive() && !h.idle() && h.calls.Load() > 0 {
		return false, nil
	}
	if hit := h.Resources.LimitHit(); hit != nil {
		held.LimitHit = hit
		err = held.Save() // before clients get their status, see recordLimitHit
	}
	removing := sv.beingRemoved(held)
	if removing {
		h.cancelReading()
	}
	err = errors.Join(err, h.Close(ctx))
	if err == nil && (removing || sv.beingRemoved(held)) {
		return true, nil
	}
	held.LimitHit = cmp.Or(h.Hit, held.LimitHit) // Sync saves it
	if err := errors.Join(err, sv.Sync(ctx, held)); err != nil {
		return true, err
	}
	if sandbox.Expired(held.Record, catalog.Now()) {
		return true, sv.removeExpired(ctx, held)
	}
	if sv.beingRemoved(held) {
		return true, nil
	}
	sv.keyPoints.Settle(ctx, held, sv.SealAll)
	sv.baseline.Settle(ctx, held.Record)
	return true, nil
}

// recordLimitHit saves in the sandbox's catalogue entry which limit ended a command, before the client gets the
// command's status. It gives up after a second: the supervisor may be about to save the same under the lock, and then
// waits for this client.
func (sv *Manager) recordLimitHit(rec *catalog.Record, hit catalog.LimitHit) {
	const patience = time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		now, err := sv.cat.Get(rec.Name)
		if err != nil || now.ID != rec.ID || now.LimitHit != nil && now.LimitHit.Limit == hit.Limit && !now.LimitHit.When.Before(hit.When) {
			return
		}
		held, err := sv.cat.TryLock(rec.Name)
		if err != nil {
			continue
		}
		if held.ID == rec.ID {
			held.LimitHit = &hit
			err = held.Save()
		}
		held.Release()
		if err == nil {
			return
		}
	}
}

// Sync makes the trees of a sandbox accessible from outside after its processes have ended, and removes the
// supervisor's socket and its mention in the catalogue entry.
func (sv *Manager) Sync(ctx context.Context, h *catalog.Locked) error {
	if err := sv.sandboxes.SyncTrees(ctx, h.Record); err != nil {
		return err
	}
	if err := os.Remove(sv.socket(h.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if h.Supervisor == nil {
		return nil
	}
	h.Supervisor, h.Paused = nil, nil
	h.RecordAge(catalog.Now())
	return h.SaveOrdered() // after a power loss, no supervisor of an earlier boot runs
}

// MustBeIdle ends the supervisor of a sandbox in which nothing runs, so that its files can be replaced. op is the
// operation for errors. Errors: errs.ErrBusy if processes run. The caller holds the sandbox's lock.
func (sv *Manager) MustBeIdle(ctx context.Context, h *catalog.Locked, op string) error {
	if err := sv.EndIdleSupervisor(ctx, h, op); err != nil {
		return err
	}
	return sv.Sync(ctx, h)
}

// EndIdleSupervisor ends the supervisor of a sandbox in which nothing runs, as [Manager.MustBeIdle] does. It leaves
// [Manager.Sync] to the supervisor or to the next command.
func (sv *Manager) EndIdleSupervisor(ctx context.Context, h *catalog.Locked, op string) error {
	ended, err := sv.RequestEnd(ctx, h.Record, Request{Leave: true})
	if err != nil {
		return err
	}
	if !ended {
		return &errs.Error{
			Op: op, Path: h.Name, Kind: errs.ErrBusy,
			Err: errors.New("processes run in the sandbox"), Hints: []string{"snapfs stop " + h.Name},
		}
	}
	return nil
}

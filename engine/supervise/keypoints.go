package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/isolate"
)

// beforeExec takes the automatic snapshot that a sandbox's policy may ask for before a command; a failure is a notice.
func (sv *Manager) beforeExec(ctx context.Context, h *catalog.Locked, command isolate.Command) {
	if h.Policy.KeyPoints == nil {
		return
	}
	sv.keyPoints.Take(ctx, h, sv.SealAll, catalog.Why{Point: catalog.AtExec, When: keypoint.Before, Command: sv.events.Shown(h.Name, command.Args)})
}

// settleKeyPoint takes the snapshots of a locked sandbox that are due: the one that its supervisor promised before it was
// killed, and the automatic one that it has postponed. It also reports earlier snapshots that failed. It takes none of a
// sandbox that is being removed; if that fails, the next command takes it.
func (sv *Manager) settleKeyPoint(ctx context.Context, h *catalog.Locked) {
	if mark, due := sv.keyPoints.Promised(h.Name); due && !sv.beingRemoved(h) { // its supervisor was killed
		sv.keyPoints.TakePromised(ctx, h, sv.SealAll, mark)
	}
	sv.keyPoints.ReportFailures(h.Name)
	if h.Policy.KeyPoints == nil || !sv.keyPoints.HasPostponed(h.Name) || sv.beingRemoved(h) {
		return
	}
	// The container is idle: a command would get a new one. Sealing the trees of one that has ended copies nothing.
	_ = sv.MustBeIdle(ctx, h, "taking a snapshot of") // a process may have started since
	sv.keyPoints.Settle(ctx, h, sv.SealAll)
}

// afterExec returns the function that begins a snapshot after each command of a sandbox, if its policy asks for that.
// If that fails, the command's client gets the error as a notice before the command's status. The caller sends the
// status and then calls finish, which takes the snapshot.
func (sv *Manager) afterExec(rec *catalog.Record, h *Supervisor) func(client *fdsock.Conn, args []string, st isolate.Status, hit *catalog.LimitHit) (finish func()) {
	points := rec.Policy.KeyPoints
	if rec.Ephemeral || !points.Has(catalog.AtExec) && !points.Has(catalog.AtLimit) {
		return func(*fdsock.Conn, []string, isolate.Status, *catalog.LimitHit) func() { return nothing }
	}
	return func(client *fdsock.Conn, args []string, st isolate.Status, hit *catalog.LimitHit) func() {
		status := st.ExitCode()
		why := keypoint.AfterCommand(rec.Policy.KeyPoints, catalog.Why{Point: catalog.AtExec, When: keypoint.After, Command: sv.events.Shown(rec.Name, args), Status: &status}, hit)
		if !points.Has(why.Point) {
			return nothing
		}
		finish, err := sv.beginSnapshot(rec, h, why)
		if err != nil {
			send(client, Reply{Note: err.Error()})
		}
		return finish
	}
}

func nothing() {}

// keyPointPatience is how long an automatic snapshot waits for the sandbox's lock before it is postponed.
const keyPointPatience = 5 * time.Second

// beginSnapshot begins an automatic snapshot of a running sandbox, in the process of its supervisor: it locks the
// sandbox and freezes its processes. The caller calls finish, which takes the snapshot of the files as they are now and
// lets the processes continue; so the caller can reply to a client in between. If this process is killed before, its
// container ends, and the next command takes the snapshot of the same files.
//
// If no command runs any more, beginSnapshot postpones the snapshot to the process that ends the container, which takes
// it of trees that nothing uses. It also postpones it while another process holds the lock for long, or must complete a
// rollback first. It takes the snapshot itself if an earlier one is due, too, and while a view of the sandbox is open: the
// view is not frozen, so that the client could write through it. After an error finish does nothing.
func (sv *Manager) beginSnapshot(rec *catalog.Record, h *Supervisor, why catalog.Why) (finish func(), err error) {
	const most = 2 * time.Millisecond
	wait := most / 16
	for end := time.Now().Add(keyPointPatience); h.alive() && !h.idle() && time.Now().Before(end); wait = min(2*wait, most) {
		held, err := sv.cat.TryLock(rec.Name)
		if err != nil {
			time.Sleep(wait)
			continue
		}
		if held.ID == rec.ID && held.LiveRollback == nil && !sv.keyPoints.HasPostponed(rec.Name) && !sv.hasView(rec.Name) {
			return sv.freezeForSnapshot(held, h, why)
		}
		defer held.Release()
		if held.ID != rec.ID {
			return nothing, nil
		}
		if held.LiveRollback == nil {
			return nothing, sv.keyPoints.Try(context.Background(), held, sv.SealAll, why)
		}
		break
	}
	return nothing, keypoint.Failed(rec.Name, why, sv.keyPoints.Postpone(rec.Name, why))
}

// hasView reports whether a view of the sandbox called name may be open, a directory of the host that shows its files.
func (sv *Manager) hasView(name string) bool {
	_, err := os.Lstat(filepath.Join(sv.cat.Path(name), catalog.ViewSocket))
	return err == nil
}

// freezeForSnapshot freezes a locked sandbox for an automatic snapshot, and returns what beginSnapshot does. finish
// releases the lock.
func (sv *Manager) freezeForSnapshot(held *catalog.Locked, h *Supervisor, why catalog.Why) (finish func(), err error) {
	thaw, err := h.freezeNow()
	if ended := errors.Is(err, errs.ErrClosed); err == nil || ended {
		if err = sv.keyPoints.Postpone(held.Name, why); err == nil && !ended {
			return func() {
				defer held.Release()
				defer thaw() // nothing may have changed
				sv.keyPoints.TakeFrozen(context.Background(), held, sv.sealFrozen(thaw), why)
			}, nil
		}
		if !ended {
			thaw()
		}
	}
	held.Release()
	return nothing, keypoint.Failed(held.Name, why, err)
}

// sealFrozen returns a function that takes a snapshot of every tree of a sandbox whose processes are frozen, and then
// calls thaw.
func (sv *Manager) sealFrozen(thaw func()) keypoint.Seal {
	return func(ctx context.Context, h *catalog.Locked, ids []snapshot.ID) error {
		defer thaw()
		return sv.sealTrees(ctx, h, ids, snapshot.InUse)
	}
}

// refusals returns the function that takes a snapshot when the network proxy refuses an access to a host, or nil if
// the policy asks for none. The snapshot is taken in the background, so the refusal does not wait.
func (sv *Manager) refusals(rec *catalog.Record, h *Supervisor) func(host string) {
	if rec.Ephemeral || !rec.Policy.KeyPoints.Has(catalog.AtRefusal) {
		return nil
	}
	hosts := make(chan string, 1)
	h.served.Go(func() {
		for {
			select {
			case <-h.Container.Done():
				return
			case host := <-hosts:
				finish, _ := sv.beginSnapshot(rec, h, catalog.Why{Point: catalog.AtRefusal, Host: host}) // nobody waits for it
				finish()
			}
		}
	})
	return func(host string) {
		select {
		case hosts <- host:
		default: // a snapshot is due anyway
		}
	}
}

// snapshotAtDrift takes a snapshot whenever the sandbox's supervisor finds more changes of the real tree than before, if
// the policy asks for that. It takes it in the background, and ends with the container.
func (sv *Manager) snapshotAtDrift(rec *catalog.Record, h *Supervisor) {
	if rec.Ephemeral || !rec.Policy.KeyPoints.Has(catalog.AtDrift) {
		return
	}
	h.served.Go(func() {
		for found := 0; ; {
			r, _, changed := h.drift.Latest()
			if r.Files > found {
				finish, _ := sv.beginSnapshot(rec, h, catalog.Why{Point: catalog.AtDrift}) // nobody waits for it
				finish()
			}
			found = r.Files
			select {
			case <-h.Container.Done():
				return
			case <-changed:
			}
		}
	})
}

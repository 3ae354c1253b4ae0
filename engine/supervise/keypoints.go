package supervise

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/keypoint"
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

// settleKeyPoint takes the automatic snapshot of a locked sandbox that its supervisor has postponed, if any. It takes
// none of a sandbox that is being removed; if that fails, the next command takes it.
func (sv *Manager) settleKeyPoint(ctx context.Context, h *catalog.Locked) {
	if h.Policy.KeyPoints == nil || !sv.keyPoints.HasPostponed(h.Name) || sv.beingRemoved(h) {
		return
	}
	// The container is idle: a command would get a new one. Sealing the trees of one that has ended copies nothing.
	_ = sv.MustBeIdle(ctx, h, "taking a snapshot of") // a process may have started since
	sv.keyPoints.Settle(ctx, h, sv.SealAll)
}

// afterExec returns the function that takes a snapshot after each command of a sandbox, if its policy asks for that.
// If that fails, the command's client gets the error as a notice before the command's status.
func (sv *Manager) afterExec(rec *catalog.Record, h *Supervisor) func(client *fdsock.Conn, args []string, st isolate.Status, hit *catalog.LimitHit) {
	points := rec.Policy.KeyPoints
	if rec.Ephemeral || !points.Has(catalog.AtExec) && !points.Has(catalog.AtLimit) {
		return func(*fdsock.Conn, []string, isolate.Status, *catalog.LimitHit) {}
	}
	return func(client *fdsock.Conn, args []string, st isolate.Status, hit *catalog.LimitHit) {
		status := st.ExitCode()
		why := keypoint.AfterCommand(rec.Policy.KeyPoints, catalog.Why{Point: catalog.AtExec, When: keypoint.After, Command: sv.events.Shown(rec.Name, args), Status: &status}, hit)
		if !points.Has(why.Point) {
			return
		}
		if err := sv.takeNow(rec, h, why); err != nil {
			send(client, Reply{Note: err.Error()})
		}
	}
}

// keyPointPatience is how long an automatic snapshot waits for the sandbox's lock before it is postponed.
const keyPointPatience = 5 * time.Second

// takeNow takes an automatic snapshot of a running sandbox, in the process of its supervisor. If no command runs any
// more, it postpones the snapshot to the process that ends the container, which takes it of trees that nothing uses. It
// also postpones it while another process holds the lock for long, or must complete a rollback first.
func (sv *Manager) takeNow(rec *catalog.Record, h *Supervisor, why catalog.Why) error {
	for end := time.Now().Add(keyPointPatience); h.alive() && !h.idle() && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		held, err := sv.cat.TryLock(rec.Name)
		if err != nil {
			continue
		}
		defer held.Release()
		if held.ID != rec.ID {
			return nil
		}
		if held.LiveRollback == nil {
			return sv.keyPoints.Try(context.Background(), held, sv.SealAll, why)
		}
		break
	}
	return keypoint.Failed(rec.Name, why, sv.keyPoints.Postpone(rec.Name, why))
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
				_ = sv.takeNow(rec, h, catalog.Why{Point: catalog.AtRefusal, Host: host}) // nobody waits for it
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
				_ = sv.takeNow(rec, h, catalog.Why{Point: catalog.AtDrift}) // nobody waits for it
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

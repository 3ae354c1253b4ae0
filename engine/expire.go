package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
)

// lastState is the name of the last snapshot of an expired sandbox whose policy has keep-end, that is, whose
// final files the user wants.
const lastState = "end"

// reap ends expired sandboxes in which nothing runs, or whose supervisor was killed. Those that it cannot end
// now it reports as notices and leaves to the next command.
func (e *Engine) reap(ctx context.Context) error {
	list, err := e.cat.Ends()
	if len(list) == 0 || err != nil {
		return err
	}
	now := catalog.Now()
	for i := range list {
		if !list[i].Due(now) {
			continue
		}
		if err := e.reapOne(ctx, &list[i], now); err != nil {
			e.notice(list[i].Name + " has come to its end, and is not removed yet: " + err.Error())
		}
	}
	return nil
}

// reapLater starts the sweeper, a background process that ends expired sandboxes, if there are such
// sandboxes. It reports a notice for each of them now, because the sweeper cannot report to this user.
func (e *Engine) reapLater(ctx context.Context) error {
	list, err := e.cat.Ends()
	if len(list) == 0 || err != nil {
		return err
	}
	now, due := catalog.Now(), false
	e.removing = map[string]bool{}
	for i := range list {
		if !list[i].Due(now) {
			continue
		}
		rec, err := e.cat.Get(list[i].Name)
		switch {
		case err != nil, rec.ID != list[i].ID, rec.Ended != nil, !sandbox.Expired(rec, now):
			due = true
			continue // the entry is wrong; the sweeper corrects it
		case rec.Ephemeral, rec.State != catalog.Ready, rec.Supervisor != nil && proc.Alive(*rec.Supervisor):
			continue // its holder ends it
		}
		if wait, err := e.needsPromotion(rec); wait || err != nil {
			continue
		}
		due = true
		why := sandbox.RemoveHit(rec.Policy.Limits)
		if rec.Policy.Limits.KeepEnd {
			e.notice(rec.Name + " is about to end (" + why.Text + ")")
			continue
		}
		e.removing[rec.ID] = true
		e.notice(rec.Name + " is being removed (" + why.Text + ")")
	}
	if !due {
		return nil
	}
	return e.Sandboxes.SweepLater(ctx)
}

func (e *Engine) reapOne(ctx context.Context, end *catalog.End, now catalog.Instant) error {
	h, err := e.cat.TryLock(end.Name)
	switch {
	case errors.Is(err, errs.ErrBusy):
		return nil // the next command checks again
	case errors.Is(err, errs.ErrNotFound):
		return end.Drop()
	case err != nil:
		return err
	}
	defer h.Release()
	switch {
	case h.ID != end.ID || h.Ended != nil:
		return end.Drop()
	case h.Ephemeral || h.State != catalog.Ready, h.Supervisor != nil && proc.Alive(*h.Supervisor):
		return nil // its holder ends it
	case !sandbox.Expired(h.Record, now): // it was given more time
		return e.cat.RenoteEnd(end, h.Record, now)
	}
	if wait, err := e.needsPromotion(h.Record); wait || err != nil {
		return err // the next command checks again
	}
	if err := e.Supervise.Sync(ctx, h); err != nil {
		return err
	}
	if err := e.finish(ctx, h); err != nil {
		return err
	}
	return end.Drop()
}

// needsPromotion reports whether an unfinished promotion still needs the sandbox, so that it must not be
// removed. That is a promotion that waits for its unmounted target, or one through stages, which does not
// hold the sandbox's lock between its stages.
func (e *Engine) needsPromotion(rec *catalog.Record) (bool, error) {
	all, err := e.Stages.Pipelines()
	return e.Reconcile.UnfinishedOf(rec.Name) != nil || slices.ContainsFunc(all, func(p stages.Pipeline) bool { return p.State == stages.PipelineOpen && p.SandboxID == rec.ID }), err
}

// finishUnlessPromoting ends an expired sandbox with finish. While an unfinished promotion still needs the
// sandbox it does nothing; the first command after the promotion ends the sandbox.
func (e *Engine) finishUnlessPromoting(ctx context.Context, h *catalog.Locked) error {
	if wait, err := e.needsPromotion(h.Record); wait || err != nil {
		return err
	}
	return e.finish(ctx, h)
}

// finish removes an expired sandbox in which nothing runs. With keep-end it takes a last snapshot instead and
// lets nothing start in the sandbox any more. The caller holds the sandbox's lock.
func (e *Engine) finish(ctx context.Context, h *catalog.Locked) error {
	why := sandbox.RemoveHit(h.Policy.Limits)
	if !h.Policy.Limits.KeepEnd {
		err := e.Sandboxes.Remove(ctx, h)
		if err == nil {
			e.notice(h.Name + " is removed (" + why.Text + ")")
		}
		return err
	}
	mark := lastState
	if _, taken := h.Snapshot(mark); taken {
		mark = sandbox.FreeSnapshotName(h.Record)
	}
	m := catalog.NamedSnapshot{Name: mark, Parent: h.At, Taken: time.Now(), IDs: sandbox.NewSnapshotIDs(h.Record), MountPoints: hostfs.PlacesAt(h.Record)}
	err := e.Sandboxes.Changing(ctx, h, func() error {
		if err := e.Supervise.SealAll(ctx, h, m.IDs); err != nil {
			return err
		}
		why.When = m.Taken
		h.Snapshots, h.At, h.Ended, h.LimitHit = append(h.Snapshots, m), mark, &why, &why
		return h.Save()
	})
	if err == nil {
		e.notice(h.Name + " has ended, its last state is " + h.Name + "@" + mark + " (" + why.Text + ")")
		e.Baseline.Record(ctx, h.Record)
	}
	return err
}

// noteAgain updates the catalogue's list of expiry times. It drops entries of removed sandboxes. Where the
// wall clock was set, it stores the present age of the sandbox, so that a later reboot does not change that
// age.
func (e *Engine) noteAgain() error {
	list, err := e.cat.Ends()
	failures := []error{err}
	now := catalog.Now()
	for i := range list {
		rec, err := e.cat.Get(list[i].Name)
		if errors.Is(err, errs.ErrNotFound) || err == nil && rec.ID != list[i].ID {
			failures = append(failures, list[i].Drop())
			continue
		}
		if err != nil || rec.Life == nil || !now.WasSet(rec.Life.At) {
			continue
		}
		if h, err := e.cat.TryLock(rec.Name); err == nil { // else the next time
			h.RecordAge(now)
			failures = append(failures, h.Save(), e.cat.RenoteEnd(&list[i], h.Record, now))
			h.Release()
		}
	}
	return errors.Join(failures...)
}

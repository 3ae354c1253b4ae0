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

// lastState is the mark of what a sandbox held when it ended.
const lastState = "end"

// reap ends the sandboxes whose end has come while nothing ran in them, or whose keeper
// was killed. What cannot be ended now is told, and left for the next command.
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

// reapLater starts what ends the sandboxes whose end has come, and tells of each: nobody
// hears the other.
func (e *Engine) reapLater(ctx context.Context) error {
	list, err := e.cat.Ends()
	if len(list) == 0 || err != nil {
		return err
	}
	now, due := catalog.Now(), false
	e.going = map[string]bool{}
	for i := range list {
		if !list[i].Due(now) {
			continue
		}
		rec, err := e.cat.Get(list[i].Name)
		switch {
		case err != nil, rec.ID != list[i].ID, rec.Ended != nil, !sandbox.Over(rec, now):
			due = true
			continue // the note is wrong, which the other sees to
		case rec.Ephemeral, rec.State != catalog.Ready, rec.Supervisor != nil && proc.Alive(*rec.Supervisor):
			continue // whoever holds it ends it
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
		e.going[rec.ID] = true
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
		return nil // the next command looks again
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
		return nil // whoever holds it ends it
	case !sandbox.Over(h.Record, now): // it was given more time
		return e.cat.RenoteEnd(end, h.Record, now)
	}
	if wait, err := e.needsPromotion(h.Record); wait || err != nil {
		return err // the next command looks again
	}
	if err := e.Supervise.Sync(ctx, h); err != nil {
		return err
	}
	if err := e.finish(ctx, h); err != nil {
		return err
	}
	return end.Drop()
}

// needsPromotion: a promotion of the sandbox waits for its target, or one through stages has
// begun and not ended. That lets go of the sandbox's lock between its stages, and needs it
// still.
func (e *Engine) needsPromotion(rec *catalog.Record) (bool, error) {
	all, err := e.Stages.Pipelines()
	return e.Reconcile.UnfinishedOf(rec.Name) != nil || slices.ContainsFunc(all, func(p stages.Pipeline) bool { return p.State == stages.PipelineOpen && p.SandboxID == rec.ID }), err
}

// finishUnlessPromoting is finish, unless a promotion needs the sandbox still: then the
// command after it ends the sandbox.
func (e *Engine) finishUnlessPromoting(ctx context.Context, h *catalog.Locked) error {
	if wait, err := e.needsPromotion(h.Record); wait || err != nil {
		return err
	}
	return e.finish(ctx, h)
}

// finish removes a sandbox in which nothing runs, or, where its last state is to be
// kept, names that and has nothing start in it any more. The caller holds its lock.
func (e *Engine) finish(ctx context.Context, h *catalog.Locked) error {
	why := sandbox.RemoveHit(h.Policy.Limits)
	if !h.Policy.Limits.KeepEnd {
		err := e.Sandboxes.Remove(ctx, h, func() error { return nil })
		if err == nil {
			e.notice(h.Name + " is removed (" + why.Text + ")")
		}
		return err
	}
	mark := lastState
	if _, taken := h.Snapshot(mark); taken {
		mark = sandbox.FreshMark(h.Record)
	}
	m := catalog.NamedSnapshot{Name: mark, Parent: h.At, Taken: time.Now(), IDs: sandbox.Number(h.Record), MountPoints: hostfs.PlacesAt(h.Record)}
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

// noteAgain brings the notes of what is to be removed up to date: drops those of
// sandboxes that are gone, and notes how long the others have lived where the wall's
// clock was set since, so that a boot before the next note changes nothing.
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

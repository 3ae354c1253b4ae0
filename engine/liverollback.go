package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
)

// RollbackLive returns the files of a sandbox with running processes to the named snapshot mark, or with ""
// to its base. It freezes the processes meanwhile. They continue with the files of the snapshot, also in
// files that they have open (see [snapshot.Returner]), and with unchanged memory. Errors, besides those of
// [Engine.Rollback]: errs.ErrNotSupported (a backend does not support this, or the snapshot is from before a
// refresh).
func (e *Engine) RollbackLive(ctx context.Context, name, mark string) error {
	h, err := e.Supervise.Hold(ctx, name, "rolling back")
	if err != nil {
		return err
	}
	defer h.Release()
	if err := e.mayReturn(ctx, h.Record, mark); err != nil {
		return err
	}
	e.KeyPoints.Take(ctx, h, e.Supervise.SealAll, catalog.Why{Point: catalog.AtRollback, When: keypoint.Before})
	h.LiveRollback = &catalog.LiveRollback{To: mark, Before: sandbox.NewSnapshotIDs(h.Record)}
	err = e.Sandboxes.Changing(ctx, h, func() error {
		told, use, thaw, err := e.Supervise.FreezeWithReply(ctx, h)
		if err == nil {
			defer thaw()
			err = mayReturnIDMapped(h.Record, told.Shifted)
		}
		if err == nil { // nothing has refused it, and nothing has changed yet
			m, _ := h.Snapshot(mark)
			err = e.Reconcile.RewindBaseline(ctx, h.Record, m)
		}
		if err == nil {
			err = e.rollBackLive(ctx, h, use)
		}
		if err != nil {
			return errors.Join(err, e.Supervise.UndoRollback(context.WithoutCancel(ctx), h, use, false))
		}
		return e.Sandboxes.Tidy(ctx, h.Record)
	})
	h.Release()
	if err != nil {
		return err
	}
	return e.Sandboxes.SweepLater(ctx)
}

// mayReturn returns nil if a running sandbox can be rolled back to the named snapshot mark, else the reason.
func (e *Engine) mayReturn(ctx context.Context, rec *catalog.Record, mark string) error {
	if _, err := sandbox.SnapshotIDs(rec, mark); err != nil {
		return err
	}
	if m, _ := rec.Snapshot(mark); m.Base != nil {
		return cannotReturn(rec, mark, errors.New("it was refreshed since, and what runs in it has files of its base open"))
	}
	all, err := e.Supervise.LiveTrees(ctx, rec)
	if err != nil {
		return err
	}
	return e.restStill(ctx, rec, mark, all)
}

// restStill checks that a live rollback to the snapshot mark can skip some trees of the sandbox: every tree
// that is not in but, the trees that support it, must already equal the snapshot. The error names the first
// tree that does not.
func (e *Engine) restStill(ctx context.Context, rec *catalog.Record, mark string, but []supervise.LiveTree) error {
	to, err := sandbox.SnapshotIDs(rec, mark)
	if err != nil {
		return err
	}
	for i, t := range rec.Trees {
		if slices.ContainsFunc(but, func(r supervise.LiveTree) bool { return r.At == i }) {
			continue
		}
		why := errors.New(t.Driver + " cannot take " + t.Path + " back under what runs in it")
		b, err := e.Host.BackendOf(ctx, t)
		if err != nil {
			return err
		}
		toucher, ok := b.(snapshot.ChangeLister)
		if !ok {
			return cannotReturn(rec, mark, why)
		}
		for _, err := range toucher.ListChanges(ctx, to[i], t.Fork) {
			if err != nil && !errors.Is(err, errs.ErrNotSupported) {
				return err
			}
			return cannotReturn(rec, mark, why)
		}
	}
	return nil
}

func mayReturnIDMapped(rec *catalog.Record, shifted []string) error {
	if len(shifted) == 0 {
		return nil
	}
	return cannotReturn(rec, rec.LiveRollback.To, errors.New("this kernel has no id-mapped mounts of "+shifted[0]+", and the process that shows it keeps what it has read"))
}

func cannotReturn(rec *catalog.Record, mark string, why error) error {
	return &errs.Error{Op: "rolling back", Path: rec.Name, Kind: errs.ErrNotSupported, Err: why, Hints: []string{rollbackOf(rec, mark) + " --stop"}}
}

// rollbackOf returns, for an error's hint, the command line that rolls a sandbox back to the snapshot mark.
func rollbackOf(rec *catalog.Record, mark string) string {
	return strings.TrimSpace("snapfs rollback " + rec.Name + " " + mark)
}

// hintLive adds the hint "--live" to err, the error of a rollback that was refused because processes run. It
// does so only if a live rollback to the snapshot mark is possible. It returns err.
func (e *Engine) hintLive(ctx context.Context, rec *catalog.Record, mark string, err error) error {
	var busy *errs.Error
	if errors.As(err, &busy) && errors.Is(err, errs.ErrBusy) && e.mayReturn(ctx, rec, mark) == nil {
		busy.Hints = append(busy.Hints, rollbackOf(rec, mark)+" --live")
	}
	return err
}

// rollBackLive switches the trees of a frozen sandbox to the snapshot LiveRollback.To of its catalogue entry,
// and saves that. First it takes a snapshot of the present state of every tree, from which
// [supervise.Manager.UndoRollback] restores them after an error. use tells the backends that processes have
// files open.
func (e *Engine) rollBackLive(ctx context.Context, h *catalog.Locked, use snapshot.Use) error {
	to, err := sandbox.SnapshotIDs(h.Record, h.LiveRollback.To)
	if err == nil {
		err = e.witness(events.SandboxRollingBack, h.Record, events.Data{Name: h.LiveRollback.To})
	}
	if err != nil {
		return err
	}
	all, err := e.Supervise.LiveTrees(ctx, h.Record)
	if err == nil {
		err = e.restStill(ctx, h.Record, h.LiveRollback.To, all)
	}
	for _, t := range all {
		if err == nil {
			_, err = t.Seal(ctx, t.Fork, h.LiveRollback.Before[t.At], use)
		}
	}
	if err == nil {
		h.LiveRollback.Saved = true
		err = h.Save()
	}
	for _, t := range all {
		if err == nil {
			err = fault.Point(ctx, "go back")
		}
		if err == nil {
			err = t.Return(ctx, t.Fork, to[t.At], use)
		}
		if errors.Is(err, errs.ErrNotSupported) {
			err = cannotReturn(h.Record, h.LiveRollback.To, err)
		}
	}
	if err == nil {
		err = fault.Point(ctx, "say that it went back")
	}
	if err != nil {
		return err
	}
	mark := h.LiveRollback.To
	if err := supervise.SaveRolledBack(h, mark); err != nil {
		return err
	}
	e.announce(events.SandboxRolledBack, h.Record, events.Data{Name: mark})
	return nil
}

package supervise

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// Hold locks a sandbox, so that no other command changes it. The caller releases the lock. op is the operation for
// errors. Errors: errs.ErrBusy if the sandbox belongs to a running command; those of [Manager.HoldAny].
func (sv *Manager) Hold(ctx context.Context, name, op string) (*catalog.Locked, error) {
	h, err := sv.HoldAny(ctx, name)
	if err == nil && (h.Ephemeral || h.State != catalog.Ready) {
		h.Release()
		return nil, &errs.Error{Op: op, Path: name, Kind: errs.ErrBusy, Err: errors.New("the sandbox belongs to a command that is running")}
	}
	return h, err
}

// HoldAny locks a sandbox, even one that belongs to a running command. It first completes or undoes an interrupted
// rollback, because a half rolled back sandbox must not be promoted. It also takes the snapshot that a supervisor has
// postponed, if any.
func (sv *Manager) HoldAny(ctx context.Context, name string) (*catalog.Locked, error) {
	h, err := sv.cat.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := sv.FinishRollback(ctx, h); err != nil {
		h.Release()
		return nil, err
	}
	sv.settleKeyPoint(ctx, h)
	return h, nil
}

// A LiveTree is a tree of a sandbox that can be rolled back while processes use it.
type LiveTree struct {
	snapshot.Backend
	snapshot.Returner
	Fork snapshot.ForkID
	At   int // index in the record's trees
}

// LiveTrees returns the trees of a sandbox that can be rolled back while processes use them.
func (sv *Manager) LiveTrees(ctx context.Context, rec *catalog.Record) (all []LiveTree, err error) {
	for i, t := range rec.Trees {
		b, err := sv.host.BackendOf(ctx, t)
		if err != nil {
			return nil, err
		}
		if r, ok := b.(snapshot.Returner); ok {
			all = append(all, LiveTree{b, r, t.Fork, i})
		}
	}
	return all, nil
}

// FinishRollback completes or undoes a live rollback of a sandbox whose command was killed during it.
func (sv *Manager) FinishRollback(ctx context.Context, h *catalog.Locked) error {
	if h.LiveRollback == nil {
		return nil
	}
	use, thaw, err := sv.Freeze(ctx, h)
	if err != nil {
		return err
	}
	defer thaw()
	return sv.UndoRollback(ctx, h, use, true)
}

// UndoRollback returns the trees of a sandbox to their contents before an unfinished live rollback; use says whether
// its processes are frozen or gone. With finish, it keeps the rollback instead if all trees were already rolled back.
func (sv *Manager) UndoRollback(ctx context.Context, h *catalog.Locked, use snapshot.Use, finish bool) error {
	if !h.LiveRollback.Saved {
		return SaveRolledBack(h, h.At)
	}
	all, err := sv.LiveTrees(ctx, h.Record)
	if err != nil {
		return err
	}
	var gone []LiveTree
	for _, t := range all {
		base, err := t.Base(ctx, t.Fork)
		if err != nil {
			return err
		}
		if base != h.LiveRollback.Before[t.At] {
			gone = append(gone, t)
		}
	}
	if finish && len(gone) == len(all) {
		return SaveRolledBack(h, h.LiveRollback.To)
	}
	for _, t := range gone {
		if err := t.Return(ctx, t.Fork, h.LiveRollback.Before[t.At], use); err != nil {
			return err
		}
	}
	return SaveRolledBack(h, h.At)
}

// SaveRolledBack saves in the catalogue that a sandbox's files are at the named snapshot at and that no rollback is
// under way. After an error h is as before.
func SaveRolledBack(h *catalog.Locked, at string) error {
	was, before := h.At, h.LiveRollback
	h.At, h.LiveRollback = at, nil
	err := h.Save()
	if err != nil {
		h.At, h.LiveRollback = was, before
	}
	return err
}

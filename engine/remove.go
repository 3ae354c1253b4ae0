package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// Remove ends a sandbox's processes and removes it: its name at once, its
// space later. Safe at any moment and, but for ErrNotFound, repeatable.
func (e *Engine) Remove(ctx context.Context, name string) error {
	if err := e.Stop(ctx, name); err != nil {
		return err
	}
	intent, err := e.cat.Begin(catalog.Removing, name)
	if err != nil {
		return err
	}
	return errors.Join(e.discard(ctx, name), intent.End())
}

// discard takes a sandbox without processes away.
func (e *Engine) discard(ctx context.Context, name string) error {
	h, err := e.cat.Hold(ctx, name)
	if errors.Is(err, snapshot.ErrNotFound) {
		return e.cat.DropClaim(name)
	}
	if err != nil {
		return err
	}
	if err := h.Discard(); err != nil {
		return err
	}
	return e.reclaim(ctx)
}

// reclaim gives back the trees of all sandboxes in the trash. What fails stays
// there for the next time.
func (e *Engine) reclaim(ctx context.Context) error {
	found, errs := e.cat.Trash()
	errs = append(errs, e.reclaimTrees(ctx, found))
	if len(found) > 0 {
		errs = append(errs, e.clean(ctx, found))
	}
	return errors.Join(errs...)
}

func (e *Engine) reclaimTrees(ctx context.Context, found []catalog.Discarded) error {
	var errs []error
	for _, d := range found {
		if err := e.removeTrees(ctx, d.Record); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, d.Forget())
	}
	return errors.Join(errs...)
}

// removeTrees removes every fork and snapshot that was ever numbered for a
// sandbox, but for bases that another may have been given too: those wait for
// [Engine.Collect].
func (e *Engine) removeTrees(ctx context.Context, rec *catalog.Record) error {
	var errs []error
	done := map[string]bool{}
	for _, t := range rec.Trees {
		b, err := e.backendOf(ctx, t)
		if errors.Is(err, snapshot.ErrNotFound) {
			continue // the filesystem that held it is gone, and the tree with it
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		place := t.Driver
		if _, apart := b.(snapshot.Hider); apart {
			place += " " + t.Path
		}
		if !done[place] {
			done[place] = true
			errs = append(errs, removeNumbers(ctx, b, rec))
		}
	}
	return errors.Join(errs...)
}

func removeNumbers(ctx context.Context, b snapshot.Backend, rec *catalog.Record) error {
	var errs []error
	shared := rec.Lent || b.Facts().Flushes
	isBase := func(id snapshot.ID) bool {
		return slices.ContainsFunc(rec.Trees, func(t catalog.Tree) bool { return t.Base == id })
	}
	for id, fork := range rec.Numbers() {
		errs = append(errs, b.RemoveFork(ctx, fork))
		if !shared || !isBase(id) {
			errs = append(errs, b.Remove(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// clean gives the space of removed sandboxes back in the background, where
// there is any: what a backend has put by for the next sandbox costs nothing.
func (e *Engine) clean(ctx context.Context, gone []catalog.Discarded) error {
	for _, d := range gone {
		if len(d.Marks) > 0 || d.Next > 2*len(d.Trees) || d.Lent {
			return e.sweepLater() // of what it named, something may be shared
		}
		for _, t := range d.Trees {
			b, err := e.backendOf(ctx, t)
			if err != nil {
				continue // its place is gone
			}
			if p, ok := b.(snapshot.Pender); !ok || p.Pending() {
				return e.sweepLater()
			}
		}
	}
	return nil
}

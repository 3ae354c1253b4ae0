package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// SettleTrees makes trees that were mounted, and are not any more, reachable.
func (sb *Store) SyncTrees(ctx context.Context, rec *catalog.Record) error {
	for _, t := range rec.Trees {
		b, err := sb.host.BackendOf(ctx, t)
		if err != nil {
			return err
		}
		if s, ok := b.(snapshot.Syncer); ok {
			if err := s.Sync(ctx, t.Fork); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropBases removes what is kept of bases that a sandbox does not have any more.
func (sb *Store) dropBases(rec *catalog.Record) error {
	dir := filepath.Join(sb.cat.Path(rec.Name), "bases")
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	used := map[string]bool{}
	for _, n := range rec.Generations() {
		used[strconv.Itoa(n)] = true
	}
	for _, entry := range list {
		if !used[entry.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	if err != nil {
		return &errs.Error{Op: "removing what is kept of", Path: rec.Name, Kind: errs.KindOf(err), Err: err}
	}
	return nil
}

// Remove takes a sandbox away whose lock is held, once last has succeeded.
func (sb *Store) Remove(ctx context.Context, h *catalog.Locked, last func() error) error {
	intent, err := sb.cat.Begin(catalog.Removing, h.Name, h.ID)
	if errors.Is(err, errs.ErrNoSpace) {
		intent, err = new(catalog.Intent), nil // this is how one makes room
	}
	if err != nil {
		return err
	}
	if err = last(); err == nil {
		err = sb.DiscardHeld(ctx, h)
	}
	sb.End(intent) // what is left is in the trash
	return err
}

// EndIfGone ends the intent of a sandbox that was to be discarded. Where it is
// still there, the intent stays, for the next command.
func (sb *Store) EndIfGone(i *catalog.Intent, rec *catalog.Record, err error) {
	if err != nil {
		if r, err := sb.cat.Get(rec.Name); err == nil && r.ID == rec.ID {
			return
		}
	}
	sb.End(i)
}

// Discard takes a sandbox without processes away, if it is still there.
func (sb *Store) Discard(ctx context.Context, rec *catalog.Record) error {
	h, err := sb.cat.Lock(ctx, rec.Name)
	if err == nil && h.ID != rec.ID {
		h.Release()
		err = errs.ErrNotFound
	}
	if errors.Is(err, errs.ErrNotFound) {
		return sb.Reclaim(ctx, rec.ID)
	}
	if err != nil {
		return err
	}
	return sb.DiscardHeld(ctx, h)
}

// DiscardHeld takes a sandbox's name, then its trees. The lock is released.
func (sb *Store) DiscardHeld(ctx context.Context, h *catalog.Locked) error {
	if err := h.Discard(); err != nil {
		return err
	}
	return sb.Reclaim(ctx, h.ID)
}

// Reclaim gives back the trees of all sandboxes in the trash. What fails stays
// there for the next time, and is an error if it is of the sandbox id: what is
// wrong with others is told by [Engine.Collect].
func (sb *Store) Reclaim(ctx context.Context, id string) error {
	found, _ := sb.cat.Trash()
	var err error
	for _, d := range found {
		if derr := sb.ReclaimOne(ctx, d); d.ID == id {
			err = derr
		}
	}
	if len(found) > 0 {
		err = errors.Join(err, sb.clean(ctx, found))
	}
	return err
}

func (sb *Store) ReclaimOne(ctx context.Context, d catalog.Discarded) error {
	defer d.Release()
	if err := sb.removeTrees(ctx, d.Record); err != nil {
		return fmt.Errorf("%s is removed, but not what it holds: %w", d.Name, err)
	}
	return d.Forget()
}

// removeTrees removes every fork and snapshot that was ever numbered for a
// sandbox, but for bases that another may have been given too: those wait for
// [Engine.Collect].
func (sb *Store) removeTrees(ctx context.Context, rec *catalog.Record) error {
	return sb.eachPlace(ctx, rec, func(b snapshot.Backend) error { return removeNumbers(ctx, b, rec) })
}

// Tidy removes what was numbered for a sandbox and is none of its states.
func (sb *Store) Tidy(ctx context.Context, rec *catalog.Record) error {
	ids, forks := map[snapshot.ID]bool{}, map[snapshot.ForkID]bool{}
	for _, t := range rec.Trees {
		ids[t.Base], forks[t.Fork] = true, true
	}
	for _, id := range rec.Past {
		ids[id] = true // a collection finds out whether others have it
	}
	for id := range rec.Bases() {
		ids[id] = true
	}
	for _, m := range rec.Snapshots {
		for _, id := range m.IDs {
			ids[id] = true
		}
	}
	if rec.LiveRollback != nil {
		for _, id := range rec.LiveRollback.Before {
			ids[id] = true
		}
	}
	err := sb.eachPlace(ctx, rec, func(b snapshot.Backend) error {
		var failures []error
		for id, fork := range rec.Numbers() {
			if !forks[fork] {
				failures = append(failures, b.RemoveFork(ctx, fork))
			}
			if !ids[id] {
				failures = append(failures, b.Remove(ctx, id))
			}
		}
		return errors.Join(failures...)
	})
	return errors.Join(err, sb.dropBases(rec))
}

// eachPlace opens each place where a sandbox has trees, once.
func (sb *Store) eachPlace(ctx context.Context, rec *catalog.Record, do func(snapshot.Backend) error) error {
	var failures []error
	done := map[string]bool{}
	for _, t := range rec.Trees {
		b, err := sb.host.BackendOf(ctx, t)
		if errors.Is(err, errs.ErrNotFound) {
			continue // the filesystem that held it is gone, and the tree with it
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if place := t.Driver + " " + sb.host.DataPlace(t.Driver, b); !done[place] {
			done[place] = true
			failures = append(failures, do(b))
		}
	}
	return errors.Join(failures...)
}

func removeNumbers(ctx context.Context, b snapshot.Backend, rec *catalog.Record) error {
	var failures []error
	shared := rec.Lent || b.Facts().Flushes
	for id, fork := range rec.Numbers() {
		failures = append(failures, b.RemoveFork(ctx, fork))
		if !shared || !rec.HasBase(id) {
			failures = append(failures, b.Remove(ctx, id))
		}
	}
	return errors.Join(failures...)
}

// clean gives the space of removed sandboxes back in the background, where
// there is any: what a backend has put by for the next sandbox costs nothing.
func (sb *Store) clean(ctx context.Context, gone []catalog.Discarded) error {
	for _, d := range gone {
		if len(d.Snapshots) > 0 || d.Next > 2*len(d.Trees) || d.Lent {
			return sb.SweepLater(ctx) // of what it named, something may be shared
		}
		for _, t := range d.Trees {
			b, err := sb.host.BackendOf(ctx, t)
			if err != nil {
				continue // its place is gone
			}
			if s, ok := b.(snapshot.Sweeper); ok && s.Pending() {
				return sb.SweepLater(ctx)
			}
		}
	}
	return nil
}

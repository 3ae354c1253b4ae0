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
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// SyncTrees writes the forks of a stopped sandbox to stable storage, where the backend requires that before
// they can be used again ([snapshot.Syncer]). No fork is mounted.
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

// dropBases removes the stored baselines (originals of changed files) that belong to bases which a sandbox no
// longer has.
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
		return errs.With("removing the baselines of", rec.Name, err)
	}
	return nil
}

// Remove removes a locked sandbox and releases the lock.
func (sb *Store) Remove(ctx context.Context, h *catalog.Locked) error {
	intent, err := sb.BeginRemoval(h.Record)
	if err != nil {
		return err
	}
	err = sb.DiscardHeld(ctx, h)
	sb.End(intent) // the rest is in the trash
	return err
}

// EndIfGone ends the intent i, which announced the creation or removal of a sandbox in the catalogue, once
// the sandbox does not exist. If err left the sandbox in place, the intent stays, and the next command
// repairs the sandbox.
func (sb *Store) EndIfGone(i *catalog.Intent, rec *catalog.Record, err error) {
	if err != nil {
		if r, err := sb.cat.Get(rec.Name); err == nil && r.ID == rec.ID {
			return
		}
	}
	sb.End(i)
}

// Discard removes a sandbox that is not running. If it does not exist any more, Discard only removes trees
// that are left of it.
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

// BeginRemoval announces that this process removes the sandbox of rec; the caller ends the intent. On a full disk
// nothing is announced, because removing frees space.
func (sb *Store) BeginRemoval(rec *catalog.Record) (*catalog.Intent, error) {
	intent, err := sb.cat.Begin(catalog.Removing, rec.Name, rec.ID)
	if errors.Is(err, errs.ErrNoSpace) {
		return new(catalog.Intent), nil
	}
	return intent, err
}

// DiscardHeld moves a locked sandbox to the catalogue's trash, which frees its name, and then removes its
// trees. It releases the lock.
func (sb *Store) DiscardHeld(ctx context.Context, h *catalog.Locked) error {
	d, err := sb.Unname(h)
	if err != nil {
		return err
	}
	return sb.Reclaim(ctx, d.ID, d)
}

// DiscardSoon removes a locked sandbox as [Store.DiscardHeld] does, and then ends the intent that announces that. If the
// Store has a [Background], that removes the trees later, and reports a failure as a notice: on a disk that discards
// freed blocks at once, each of some fifteen files costs 1 ms. After an error the intent is the caller's still.
func (sb *Store) DiscardSoon(ctx context.Context, h *catalog.Locked, intent *catalog.Intent) error {
	if sb.later == nil {
		err := sb.DiscardHeld(ctx, h)
		if err == nil {
			sb.End(intent)
		}
		return err
	}
	d, err := sb.Unname(h)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	sb.later.Do(func() {
		defer sb.End(intent)
		if err := sb.Reclaim(ctx, d.ID, d); err != nil {
			sb.notice(err.Error())
		}
	})
	return nil
}

// Unname moves a locked sandbox to the catalogue's trash, which frees its name. [Store.Reclaim] or the next
// garbage collection removes its trees. The lock passes to the result; after an error it is released.
func (sb *Store) Unname(h *catalog.Locked) (catalog.Discarded, error) {
	gone := events.Event{Type: events.SandboxRemoved, Subject: h.Name, SandboxID: h.ID, Unwitnessed: !h.Policy.Evidence}
	d, err := h.Discard()
	if err == nil {
		sb.events.Append(gone)
	}
	return d, err
}

// Reclaim removes the trees of all sandboxes in the catalogue's trash: those that the caller has locked, then
// the others. A sandbox that cannot be removed stays there for the next call. Reclaim returns only the error
// of the sandbox id; a garbage collection reports the others.
func (sb *Store) Reclaim(ctx context.Context, id string, locked ...catalog.Discarded) error {
	found, _ := sb.cat.Trash()
	found = append(locked, found...)
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

// ReclaimOne removes the trees of the discarded sandbox d, and then its entry in the catalogue's trash. Bases
// that other sandboxes may share are left to a garbage collection. ReclaimOne releases the lock of d.
func (sb *Store) ReclaimOne(ctx context.Context, d catalog.Discarded) error {
	defer d.Release()
	err := sb.eachPlace(ctx, d.Record, func(b snapshot.Backend) error { return removeNumbers(ctx, b, d.Record) })
	if err != nil {
		return fmt.Errorf("%s is removed, but its trees are not: %w", d.Name, err)
	}
	return d.Forget()
}

// Tidy removes those forks and snapshots of a sandbox to which its record does not refer, such as after a
// failed change. It tries every id ever given out for the sandbox.
func (sb *Store) Tidy(ctx context.Context, rec *catalog.Record) error {
	ids, forks := map[snapshot.ID]bool{}, map[snapshot.ForkID]bool{}
	for _, t := range rec.Trees {
		ids[t.Base], forks[t.Fork] = true, true
	}
	for _, id := range rec.Past {
		ids[id] = true // a garbage collection checks whether others use it
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

// eachPlace calls do once for each backend that stores trees of a sandbox, at each of its locations. It
// leaves out trees whose filesystem is not mounted any more, and joins the errors.
func (sb *Store) eachPlace(ctx context.Context, rec *catalog.Record, do func(snapshot.Backend) error) error {
	var failures []error
	done := map[string]bool{}
	for _, t := range rec.Trees {
		b, err := sb.host.BackendOf(ctx, t)
		if errors.Is(err, errs.ErrNotFound) {
			continue // its filesystem is gone
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

// removeNumbers removes from the backend b all forks and snapshots of a sandbox, by every id ever given out
// for it, except bases that other sandboxes may share.
func removeNumbers(ctx context.Context, b snapshot.Backend, rec *catalog.Record) error {
	var failures []error
	var hints []string // each failure has a file of its own
	note := func(err error) { failures, hints = append(failures, err), append(hints, errs.HintsOf(err)...) }
	shared := rec.Lent || b.Facts().Flushes
	for id, fork := range rec.Numbers() {
		note(b.RemoveFork(ctx, fork))
		if !shared || !rec.HasBase(id) {
			note(b.Remove(ctx, id))
		}
	}
	return errs.With("", "", errors.Join(failures...), hints...)
}

// clean starts a garbage collection if removing the sandboxes gone may have left data that only a collection
// frees. Forks that a backend made in advance are no reason.
func (sb *Store) clean(ctx context.Context, gone []catalog.Discarded) error {
	for _, d := range gone {
		if len(d.Snapshots) > 0 || d.Next > 2*len(d.Trees) || d.Lent {
			return sb.SweepLater(ctx) // its snapshots may be shared
		}
		for _, t := range d.Trees {
			b, err := sb.host.BackendOf(ctx, t)
			if err != nil {
				continue // its filesystem is gone
			}
			if b.Pending() {
				return sb.SweepLater(ctx)
			}
		}
	}
	return nil
}

package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// Changing calls change, which makes new forks or snapshots of a locked sandbox under ids already allocated
// in its record. It saves the record first, unless its new ids were reserved. If change fails, Changing restores
// the record from disk and removes forks and snapshots without a reference; if that fails too, or the process is
// killed, the next command does it.
func (sb *Store) Changing(ctx context.Context, h *catalog.Locked, change func() error) error {
	intent, err := sb.cat.Begin(catalog.Changing, h.Name, h.ID)
	if err != nil {
		return err
	}
	if err = h.SaveNumbers(); err == nil {
		err = change()
	}
	if err != nil {
		terr := h.Reload()
		if terr == nil {
			terr = sb.Tidy(context.WithoutCancel(ctx), h.Record)
		}
		if terr != nil {
			return errors.Join(err, terr)
		}
	}
	sb.End(intent)
	return err
}

// TakeSnapshotIDs allocates a new snapshot id for each tree of a locked sandbox, in order, like NewSnapshotIDs, but
// reserved ones where the sandbox has some. The caller calls Changing before it changes anything else in the record.
func TakeSnapshotIDs(h *catalog.Locked) []snapshot.ID {
	h.TakeReserved(len(h.Trees))
	return NewSnapshotIDs(h.Record)
}

// NewSnapshotIDs allocates a new snapshot id for each tree of the sandbox, in order. The caller saves the
// record.
func NewSnapshotIDs(r *catalog.Record) (ids []snapshot.ID) {
	for range r.Trees {
		ids = append(ids, r.NewSnapshot())
	}
	return ids
}

// NewSnapshotName returns mark, the name of a snapshot of the sandbox that is to be taken, or a free name for "". Errors:
// errs.ErrInvalid, and errs.ErrExists for a name that one of its snapshots has.
func NewSnapshotName(r *catalog.Record, mark string) (string, error) {
	if mark == "" {
		return FreeSnapshotName(r), nil
	}
	if err := catalog.CheckName(mark); err != nil {
		return mark, err
	}
	if _, taken := r.Snapshot(mark); taken {
		return mark, errs.New("naming a state of "+r.Name, mark, errs.ErrExists, "the name is taken", "snapfs show "+r.Name)
	}
	return mark, nil
}

// FreeSnapshotName returns a name that no named snapshot of the sandbox has yet: s1, s2 and so on.
func FreeSnapshotName(r *catalog.Record) string {
	for i := len(r.Snapshots) + 1; ; i++ {
		name := fmt.Sprintf("s%d", i)
		if _, taken := r.Snapshot(name); !taken {
			return name
		}
	}
}

// SnapshotIDs returns the ids of the snapshots, one for each tree, that make up the sandbox's named snapshot
// mark, or those of its bases if mark is "". Errors: errs.ErrNotFound.
func SnapshotIDs(r *catalog.Record, mark string) ([]snapshot.ID, error) {
	if mark == "" {
		var ids []snapshot.ID
		for _, t := range r.Trees {
			ids = append(ids, t.Base)
		}
		return ids, nil
	}
	m, ok := r.Snapshot(mark)
	if !ok {
		return nil, &errs.Error{
			Op: "looking for a snapshot of " + r.Name, Path: mark, Kind: errs.ErrNotFound,
			Err: errors.New("no snapshot named " + mark), Hints: []string{"snapfs show " + r.Name},
		}
	}
	return m.IDs, nil
}

// ForkAll forks the snapshot from[i] as ids[i] for each tree i, and sets the forks' disk
// limits. An error may leave some of the forks.
func (sb *Store) ForkAll(ctx context.Context, rec *catalog.Record, trees []catalog.Tree, from []snapshot.ID, ids []snapshot.ForkID) error {
	for i, t := range trees {
		b, err := sb.host.BackendOf(ctx, t)
		if err == nil {
			_, err = b.Fork(ctx, from[i], ids[i])
		}
		if err == nil && hostfs.LimitsDisk(rec.Policy.Limits) {
			err = limitFork(ctx, b, ids[i], rec.ID, rec.Policy.Limits)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// RemoveForks removes the fork ids[i] of the tree trees[i], for each i. It tries all, and joins the errors.
func (sb *Store) RemoveForks(ctx context.Context, trees []catalog.Tree, ids []snapshot.ForkID) error {
	var failures []error
	for i, t := range trees {
		b, err := sb.host.BackendOf(ctx, t)
		if err == nil {
			err = b.RemoveFork(ctx, ids[i])
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// ForksOf returns the ids of the present forks of a sandbox, one for each tree.
func ForksOf(rec *catalog.Record) (ids []snapshot.ForkID) {
	for _, t := range rec.Trees {
		ids = append(ids, t.Fork)
	}
	return ids
}

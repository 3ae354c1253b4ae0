//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/trash"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Capture records a snapshot of the tree, for [snapshot.Backend]: it writes one small file, and reads only
// the root directory of the tree.
func (b *backend) Capture(ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
	r := store.Record{Tree: tree.Path, Taken: now(), Whole: true}
	err := store.CheckID(ctx, string(id))
	if err == nil {
		err = b.checkLower(tree.Path)
	}
	if err == nil {
		err = b.store.Create(ctx, b.store.SnapshotPath(id), &r)
	}
	if err != nil {
		return snapshot.Snapshot{}, fail("capturing", string(id), err)
	}
	return b.snapshotOf(id, &r), nil
}

// now returns the present time, to record as that of a capture. It is not later than the ctime of any later
// change. A change shortly before, in the same clock tick, may have that time too.
func now() time.Time { return vfs.Now().Add(-1) }

// Fork makes the fork id of the snapshot from, for [snapshot.Backend]: it creates three directories and a
// small file.
func (b *backend) Fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
	r, err := b.fork(ctx, from, id)
	if err != nil {
		return snapshot.Fork{}, fail("forking", string(id), err)
	}
	return b.forkOf(id, &r), nil
}

func (b *backend) fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (store.Record, error) {
	if err := store.CheckID(ctx, string(id)); err != nil {
		return store.Record{}, err
	}
	unlock, err := b.store.Lock(ctx, unix.LOCK_SH)
	if err != nil {
		return store.Record{}, err
	}
	defer unlock()
	if unix.Access(b.store.ForkPath(id), unix.F_OK) == nil {
		return store.Record{}, store.Refuse(errs.ErrExists, b.store.ForkPath(id), "a fork of this name exists")
	}
	base, err := store.Find(string(from), b.store.SnapshotPath(from))
	if err != nil {
		return store.Record{}, err
	}
	boot, err := proc.BootID()
	if err != nil {
		return store.Record{}, err
	}
	if err := b.checkLayers(base.Layers, boot); err != nil {
		return store.Record{}, err
	}
	r := store.Record{
		Fork: true, Tree: base.Tree, Taken: base.Taken, Base: string(from), Boot: boot, Layers: b.store.Shorten(base.Layers),
		Whole: base.Whole || len(base.Layers) == 0,
	}
	if r.Upper, err = b.store.NewLayer(ctx, string(id), b.store.TopDir(r.Layers, r.Tree)); err != nil {
		return store.Record{}, err
	}
	if err := b.store.Create(ctx, b.store.ForkPath(id), &r); err != nil {
		b.store.ToTrash(b.store.LayerPath(r.Upper))
		return store.Record{}, err
	}
	return r, nil
}

func (b *backend) Lookup(_ context.Context, id snapshot.ID) (snapshot.Snapshot, error) {
	r, err := store.Find(string(id), b.store.SnapshotPath(id))
	if err == nil && len(r.Layers) > 0 {
		var boot string
		if boot, err = proc.BootID(); err == nil {
			err = b.checkLayers(r.Layers, boot)
		}
	}
	if err != nil {
		return snapshot.Snapshot{}, fail("looking up", string(id), err)
	}
	return b.snapshotOf(id, &r), nil
}

// LookupFork returns the fork id with its view, for [snapshot.Backend]. It also records that the fork may be
// mounted during this boot.
func (b *backend) LookupFork(ctx context.Context, id snapshot.ForkID) (snapshot.Fork, error) {
	r, err := store.Find(string(id), b.store.ForkPath(id))
	if err == nil {
		err = b.prepareMount(ctx, id, &r)
	}
	if err != nil {
		return snapshot.Fork{}, fail("looking up", string(id), err)
	}
	return b.forkOf(id, &r), nil
}

func (b *backend) List(context.Context) ([]snapshot.ID, []snapshot.ForkID, error) {
	s, err := store.IDs[snapshot.ID](b.store, "snapshots")
	if err != nil {
		return nil, nil, fail("listing", "", err)
	}
	f, err := store.IDs[snapshot.ForkID](b.store, "forks")
	return s, f, fail("listing", "", err)
}

func (b *backend) Remove(ctx context.Context, id snapshot.ID) error {
	return fail("removing", string(id), b.store.Forget(ctx, string(id), b.store.SnapshotPath(id)))
}

// RemoveFork removes the fork id, for [snapshot.Backend]. It also moves the fork's upper layer into the trash
// at once: no snapshot names it, because Seal gives the fork a new upper before it writes the snapshot's
// record.
func (b *backend) RemoveFork(ctx context.Context, id snapshot.ForkID) error {
	path := b.store.ForkPath(id)
	r, err := store.Find(string(id), path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fail("removing", string(id), b.store.Forget(ctx, string(id), path))
	}
	unlock, err := b.store.Lock(ctx, unix.LOCK_SH)
	if err != nil {
		return fail("removing", string(id), err)
	}
	defer unlock()
	if err := b.store.Drop(ctx, path); err != nil {
		return fail("removing", string(id), err)
	}
	project := b.projects.ProjectOf(r.Upper)
	if project != 0 {
		err = b.projects.UnlimitProject(r.Upper, project)
	}
	if project != 0 || !b.store.KeepSpare(r.Upper) {
		b.store.ToTrash(b.store.LayerPath(r.Upper))
	}
	return fail("removing", string(id), err)
}

// Pending reports whether Sweep would free space, for [snapshot.Backend]: whether the trash of removed layers
// has entries.
func (b *backend) Pending() bool { return trash.Any(b.store.Dir + "/trash") }

func (b *backend) snapshotOf(id snapshot.ID, r *store.Record) snapshot.Snapshot {
	s := snapshot.Snapshot{ID: id, Tree: snapshot.Tree{Path: r.Tree}, Taken: r.Taken}
	if len(r.Layers) == 0 {
		s.View.Path = r.Tree
	} else {
		s.View.Overlay = b.overlay(r, "")
	}
	return s
}

func (b *backend) forkOf(id snapshot.ForkID, r *store.Record) snapshot.Fork {
	o := b.overlay(r, id)
	o.Upper, o.Work = b.store.TreePath(r.Upper), b.store.WorkPath(r.Upper)
	return snapshot.Fork{ID: id, Base: snapshot.ID(r.Base), View: snapshot.View{Overlay: o}}
}

// overlay returns the overlay mount that shows the layers of r, the record of a fork or a snapshot, above its
// real tree. It has no upper directory, so it is read-only. If a FUSE process serves the real tree, it serves
// the lower layers for the given fork, or for a snapshot if fork is "".
func (b *backend) overlay(r *store.Record, fork snapshot.ForkID) *snapshot.Overlay {
	metacopy := !b.store.UserXattr && !r.Whole // an earlier version of snapfs wrote files without their content
	lower := make([]string, 0, len(r.Layers)+1)
	for _, layer := range r.Layers {
		lower = append(lower, b.store.TreePath(layer))
	}
	if b.served != nil {
		return &snapshot.Overlay{
			Lower: lower, Base: b.served.Serve(r.Tree, r.Taken, fork), UserXattr: b.store.UserXattr, Metacopy: metacopy,
		}
	}
	return &snapshot.Overlay{
		Lower: append(lower, r.Tree), UserXattr: b.store.UserXattr, Metacopy: metacopy,
		Nested: len(r.Layers) > 0 && inTree(b.store.Dir, r.Tree),
	}
}

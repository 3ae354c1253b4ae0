//go:build linux

package overlay

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Capture writes one small file. It reads only the root directory of the tree.
func (b *backend) Capture(ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
	r := record{tree: tree.Path, taken: now()}
	err := checkID(ctx, string(id))
	if err == nil {
		err = b.checkLower(tree.Path)
	}
	if err == nil {
		err = b.store.create(ctx, b.store.snapshotPath(id), &r)
	}
	if err != nil {
		return snapshot.Snapshot{}, fail("capturing", string(id), err)
	}
	return b.snapshotOf(id, &r), nil
}

// now returns a time before the ctime of every later change. A change in the same clock tick
// shortly before also counts as later; the opposite error is impossible.
func now() time.Time { return vfs.Now().Add(-1) }

// Fork makes three directories and a small file.
func (b *backend) Fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
	r, err := b.fork(ctx, from, id)
	if err != nil {
		return snapshot.Fork{}, fail("forking", string(id), err)
	}
	return b.forkOf(id, &r), nil
}

func (b *backend) fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (record, error) {
	if err := checkID(ctx, string(id)); err != nil {
		return record{}, err
	}
	unlock, err := b.store.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return record{}, err
	}
	defer unlock()
	if unix.Access(b.store.forkPath(id), unix.F_OK) == nil {
		return record{}, because(errs.ErrExists, b.store.forkPath(id), "a fork of this name exists")
	}
	base, err := find(string(from), b.store.snapshotPath(from))
	if err != nil {
		return record{}, err
	}
	boot, err := b.boot()
	if err != nil {
		return record{}, err
	}
	if err := b.checkLayers(base.layers, boot); err != nil {
		return record{}, err
	}
	r := record{fork: true, tree: base.tree, taken: base.taken, base: string(from), boot: boot, layers: b.store.shorten(base.layers)}
	if r.upper, err = b.store.newLayer(ctx, string(id), b.store.topDir(r.layers, r.tree)); err != nil {
		return record{}, err
	}
	if err := b.store.create(ctx, b.store.forkPath(id), &r); err != nil {
		b.store.toTrash(b.store.layerPath(r.upper))
		return record{}, err
	}
	return r, nil
}

func (b *backend) Lookup(_ context.Context, id snapshot.ID) (snapshot.Snapshot, error) {
	r, err := find(string(id), b.store.snapshotPath(id))
	if err == nil && len(r.layers) > 0 {
		var boot string
		if boot, err = b.boot(); err == nil {
			err = b.checkLayers(r.layers, boot)
		}
	}
	if err != nil {
		return snapshot.Snapshot{}, fail("looking up", string(id), err)
	}
	return b.snapshotOf(id, &r), nil
}

// LookupFork also records that the fork may be mounted during this boot.
func (b *backend) LookupFork(ctx context.Context, id snapshot.ForkID) (snapshot.Fork, error) {
	r, err := find(string(id), b.store.forkPath(id))
	if err == nil {
		err = b.prepareMount(ctx, id, &r)
	}
	if err != nil {
		return snapshot.Fork{}, fail("looking up", string(id), err)
	}
	return b.forkOf(id, &r), nil
}

func (b *backend) List(context.Context) ([]snapshot.ID, []snapshot.ForkID, error) {
	s, err := ids[snapshot.ID](b.store, "snapshots")
	if err != nil {
		return nil, nil, fail("listing", "", err)
	}
	f, err := ids[snapshot.ForkID](b.store, "forks")
	return s, f, fail("listing", "", err)
}

func (b *backend) Remove(ctx context.Context, id snapshot.ID) error {
	return fail("removing", string(id), b.store.forget(ctx, string(id), b.store.snapshotPath(id)))
}

// RemoveFork also discards the fork's upper layer at once: no snapshot names it, because Seal gives
// the fork a new upper before it writes the snapshot's record.
func (b *backend) RemoveFork(ctx context.Context, id snapshot.ForkID) error {
	path := b.store.forkPath(id)
	r, err := find(string(id), path)
	if err != nil {
		return fail("removing", string(id), b.store.forget(ctx, string(id), path))
	}
	unlock, err := b.store.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return fail("removing", string(id), err)
	}
	defer unlock()
	if err := b.store.forget(ctx, string(id), path); err != nil {
		return fail("removing", string(id), err)
	}
	project := b.projects.projectOf(r.upper)
	if project != 0 {
		err = b.projects.unlimitProject(r.upper, project)
	}
	if project != 0 || !b.store.keepSpare(r.upper) {
		b.store.toTrash(b.store.layerPath(r.upper))
	}
	return fail("removing", string(id), err)
}

// Pending reports whether the trash has entries.
func (b *backend) Pending() bool {
	dir, err := os.Open(b.store.dir + "/trash")
	if err != nil {
		return false
	}
	defer dir.Close()
	some, _ := dir.Readdirnames(1)
	return len(some) > 0
}

func (b *backend) snapshotOf(id snapshot.ID, r *record) snapshot.Snapshot {
	s := snapshot.Snapshot{ID: id, Tree: snapshot.Tree{Path: r.tree}, Taken: r.taken}
	if len(r.layers) == 0 {
		s.View.Path = r.tree
	} else {
		s.View.Overlay = b.overlay(r, "")
	}
	return s
}

func (b *backend) forkOf(id snapshot.ForkID, r *record) snapshot.Fork {
	o := b.overlay(r, id)
	o.Upper, o.Work = b.store.treePath(r.upper), b.store.workPath(r.upper)
	return snapshot.Fork{ID: id, Base: snapshot.ID(r.base), View: snapshot.View{Overlay: o}}
}

// overlay returns the mount of a record's layers. If fork is not "", it belongs to that fork.
func (b *backend) overlay(r *record, fork snapshot.ForkID) *snapshot.Overlay {
	lower := make([]string, 0, len(r.layers)+1)
	for _, layer := range r.layers {
		lower = append(lower, b.store.treePath(layer))
	}
	if b.served != nil {
		return &snapshot.Overlay{Lower: lower, Base: b.served.Serve(r.tree, r.taken, fork), UserXattr: b.store.userXattr}
	}
	return &snapshot.Overlay{
		Lower: append(lower, r.tree), UserXattr: b.store.userXattr,
		Nested: len(r.layers) > 0 && inTree(b.store.dir, r.tree),
	}
}

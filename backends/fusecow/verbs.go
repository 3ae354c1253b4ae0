//go:build linux

package fusecow

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/trash"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// checkStart returns an error if id, that of a snapshot or fork, is invalid, or if ctx has ended. Operations
// of the backend call it first.
func checkStart(ctx context.Context, id string) error {
	if !snapshot.ValidID(id) {
		return because(errs.ErrNotSupported, "", "an id is 1 to 64 characters of a-z, 0-9 and -, and does not begin with -")
	}
	return ctx.Err()
}

// now returns the present time, to record as that of a capture. It is earlier than the ctime of every later
// change.
func now() time.Time { return vfs.Now().Add(-1) }

// Capture records a snapshot of the tree, for [snapshot.Backend]: it creates one small file, and a frozen
// state if there is a [Freezer]. It reads only the root directory of the tree.
func (b *backend) Capture(ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
	r := record{Tree: tree.Path, Taken: now()}
	err := checkStart(ctx, string(id))
	if err == nil {
		err = checkTree(tree.Path)
	}
	if err == nil {
		err = b.capture(ctx, b.snapshotPath(id), &r)
	}
	if err != nil {
		return snapshot.Snapshot{}, fail("capturing", string(id), err)
	}
	s, err := b.snapshotOf(id, &r)
	return s, fail("capturing", string(id), err)
}

// Fork makes the fork id of the snapshot from, for [snapshot.Backend]: it creates an empty layer and a small
// file.
func (b *backend) Fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
	r, err := b.forked(ctx, from, id)
	if err != nil {
		return snapshot.Fork{}, fail("forking", string(id), err)
	}
	return b.forkOf(id, &r), nil
}

func (b *backend) forked(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (r record, err error) {
	if err := checkStart(ctx, string(id)); err != nil {
		return r, err
	}
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return r, err
	}
	defer unlock()
	if unix.Access(b.forkPath(id), unix.F_OK) == nil {
		return r, because(errs.ErrExists, b.forkPath(id), "a fork of that name exists")
	}
	if r, err = b.snapshot(from); err != nil {
		return r, err
	}
	own, err := b.newLayer(ctx, id)
	if err != nil {
		return r, err
	}
	r = r.above(own)
	r.Base, r.Own = string(from), len(r.Layers)-1
	if err := b.create(ctx, b.forkPath(id), &r); err != nil {
		b.discard(b.layerPath(own))
		return r, err
	}
	return r, nil
}

func (b *backend) Lookup(_ context.Context, id snapshot.ID) (snapshot.Snapshot, error) {
	r, err := b.snapshot(id)
	if err != nil {
		return snapshot.Snapshot{}, fail("looking up", string(id), err)
	}
	s, err := b.snapshotOf(id, &r)
	return s, fail("looking up", string(id), err)
}

func (b *backend) LookupFork(_ context.Context, id snapshot.ForkID) (snapshot.Fork, error) {
	r, err := b.fork(id)
	if err != nil {
		return snapshot.Fork{}, fail("looking up", string(id), err)
	}
	return b.forkOf(id, &r), nil
}

func (b *backend) List(context.Context) ([]snapshot.ID, []snapshot.ForkID, error) {
	s, err := ids[snapshot.ID](b.dir + "/snapshots")
	if err != nil {
		return nil, nil, fail("listing", "", err)
	}
	f, err := ids[snapshot.ForkID](b.dir + "/forks")
	return s, f, fail("listing", "", err)
}

func (b *backend) Remove(ctx context.Context, id snapshot.ID) error {
	return fail("removing", string(id), b.removeRecord(ctx, string(id), b.snapshotPath(id), false))
}

// RemoveFork removes the fork id, for [snapshot.Backend]. It also removes the fork's writable layer at once,
// because no snapshot names it. ErrBusy: the fork is mounted by a server, that is, in use.
func (b *backend) RemoveFork(ctx context.Context, id snapshot.ForkID) error {
	return fail("removing", string(id), b.removeFork(ctx, id))
}

func (b *backend) removeFork(ctx context.Context, id snapshot.ForkID) error {
	path := b.forkPath(id)
	if !snapshot.ValidID(string(id)) || unix.Access(path, unix.F_OK) != nil {
		return nil
	}
	unlockFork, err := b.lockFork(ctx, id)
	if err != nil {
		return err
	}
	defer unlockFork()
	r, err := read(path, true)
	if err != nil {
		return b.removeRecord(ctx, string(id), path, true)
	}
	_, release, err := b.lockLayer(ctx, r.upper())
	if err != nil && !notExist(err) {
		return err
	}
	if err == nil {
		defer release()
	}
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.removeRecord(ctx, string(id), path, true); err != nil {
		return err
	}
	b.discard(b.layerPath(r.upper()))
	b.unchargeFork(id, &r)
	return nil
}

// Pending reports whether a sweep would free space immediately, because the trash has entries, for
// [snapshot.Backend].
func (b *backend) Pending() bool { return trash.Any(b.dir + "/trash") }

func (b *backend) snapshotOf(id snapshot.ID, r *record) (s snapshot.Snapshot, err error) {
	s = snapshot.Snapshot{ID: id, Tree: snapshot.Tree{Path: r.Tree}, Taken: r.Taken, Frozen: r.State != ""}
	if len(r.Layers) == 0 {
		s.View.Path, err = b.lowerPath(r)
	} else {
		s.View.Served = snapshotView{b, id}
	}
	return s, err
}

func (b *backend) forkOf(id snapshot.ForkID, r *record) snapshot.Fork {
	return snapshot.Fork{ID: id, Base: snapshot.ID(r.Base), View: snapshot.View{Served: forkView{b: b, id: id}}}
}

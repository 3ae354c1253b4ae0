//go:build linux

package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/internal/zfs"
	"golang.org/x/sys/unix"
)

// Capture keeps the contract of [snapshot.Backend]: a snapshot of the dataset that
// holds the tree, and a hold on it: two transaction groups.
func (b *Backend) Capture(ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
	s, err := b.capture(ctx, tree, string(id))
	return s, fail("capturing", string(id), err)
}

func (b *Backend) capture(ctx context.Context, tree snapshot.Tree, id string) (s snapshot.Snapshot, err error) {
	if err := valid(id); err != nil {
		return s, err
	}
	m, err := captureOf(tree, id)
	if err != nil {
		return s, err
	}
	r, err := b.settle()
	if err != nil {
		return s, err
	}
	defer r.Close()
	return b.snapshotOf(m), r.takeOne(ctx, m, tree.Path)
}

// captureOf is the mark of a capture of the tree as it is now.
func captureOf(tree snapshot.Tree, id string) (mark, error) {
	src, err := findSource(tree.Path)
	if err == nil {
		err = fits(src)
	}
	if err == nil {
		err = running(src.dataset)
	}
	u := unique()
	return mark{
		kind: snapshots, id: id, dataset: snapshotName(src.dataset, u), unique: u,
		source: src.dataset, tree: tree.Path, within: src.within, taken: vfs.Now(),
	}, err
}

// takeOne makes the entry of a snapshot and the snapshot itself, of what has from as a
// directory in it.
func (r room) takeOne(ctx context.Context, m mark, from string) error {
	return r.make(ctx, m, func() error {
		return keep(ctx, []cloned{{tree: from, base: m}}, func() error { return nil })
	})
}

// snap takes snapshots at one instant, with their mark, of what has from as directories in it.
func snap(ctx context.Context, from, names []string, unique string) error {
	for _, path := range from {
		if err := flush(path); err != nil {
			return err
		}
	}
	if err := fault.Point(ctx, "snapshot the dataset"); err != nil {
		return err
	}
	// What it says is of no matter: of several attempts in one transaction group the last has counted.
	if _, done := quick(ctx, zfs.Snapshot, poolOf(names[0]), zfs.Pair{Name: "snaps", Value: each(names, nil)},
		zfs.Pair{Name: "props", Value: each([]string{property}, unique)}); done {
		return nil
	}
	_, err := zfsCmd(ctx, append([]string{"snapshot", "-o", marked(unique)}, names...)...)
	return err
}

func hold(ctx context.Context, names ...string) error {
	if err := fault.Point(ctx, "hold the snapshot"); err != nil {
		return err
	}
	said, done := quick(ctx, zfs.Hold, poolOf(names[0]), zfs.Pair{Name: "holds", Value: each(names, tag)})
	if done && zfs.NoZFSPairs(said) {
		return nil
	}
	_, err := zfsCmd(ctx, append([]string{"hold", tag}, names...)...)
	if done && errors.Is(err, errs.ErrExists) { // it says what was wrong with an attempt before the last
		return nil
	}
	return err
}

// flush hands what was written by mmap(2) to ZFS, which a snapshot alone would
// not have in it: dirty pages are the kernel's until they are written back.
func flush(path string) error {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return &os.PathError{Op: "sync", Path: path, Err: err}
	}
	return nil
}

// Fork keeps the contract of [snapshot.Backend]: a clone: a transaction group.
func (b *Backend) Fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
	f, err := b.fork(ctx, string(from), string(id))
	return f, fail("forking", string(id), err)
}

func (b *Backend) fork(ctx context.Context, from, id string) (f snapshot.Fork, err error) {
	if err := valid(from, id); err != nil {
		return f, err
	}
	r, err := b.enter()
	if err != nil {
		return f, absent(err)
	}
	defer r.Close()
	base, err := r.find(snapshots, from)
	if err == nil {
		err = imported(base.dataset)
	}
	if err != nil {
		return f, err
	}
	m := forkOfMark(base, id)
	return b.forkOf(m), r.grow(ctx, base, m)
}

func forkOfMark(base mark, id string) mark {
	m := base
	m.kind, m.id, m.base, m.unique = forks, id, base.id, unique()
	m.dataset = forkName(m.source, m.unique)
	return m
}

// grow makes the entry of a fork and the fork itself.
func (r room) grow(ctx context.Context, base, m mark) error {
	return r.make(ctx, m, func() error {
		err := r.clone(ctx, base.dataset, m)
		if errors.Is(err, errNoParent) { // somebody has destroyed it
			if err := unix.Unlinkat(r.fd(), homeRecord(home(m.dataset)), 0); err != nil && err != unix.ENOENT {
				return err
			}
			err = r.clone(ctx, base.dataset, m)
		}
		return err
	})
}

func (r room) clone(ctx context.Context, base string, m mark) error {
	if err := r.settleHome(ctx, home(m.dataset)); err != nil {
		return err
	}
	if err := fault.Point(ctx, "clone the snapshot"); err != nil {
		return err
	}
	props := []zfs.Pair{{Name: property, Value: m.unique}, {Name: "readonly", Value: uint64(0)}}
	if _, done := quick(ctx, zfs.Clone, m.dataset, zfs.Pair{Name: "origin", Value: base}, zfs.Pair{Name: "props", Value: props}); done {
		return nil
	}
	_, err := zfsCmd(ctx, "clone", "-o", marked(m.unique), "-o", "readonly=off", base, m.dataset)
	return err
}

// make makes an entry, and what do makes for it, and mounts that; or none of it.
func (r room) make(ctx context.Context, m mark, do func() error) error {
	return r.entry(ctx, m, func() error {
		err := do()
		if err == nil {
			err = fault.Point(ctx, "mount it")
		}
		if err == nil {
			err = r.reach(m)
		}
		return err
	})
}

// entry makes an entry, and what do makes for it; or none of it.
func (r room) entry(ctx context.Context, m mark, do func() error) error {
	if err := r.begin(ctx, m); err != nil {
		return err
	}
	if err := do(); err != nil {
		return errors.Join(err, r.giveUp(m.kind+"/"+m.id))
	}
	return nil
}

// giveUp takes back what was made of an entry: Sweep finds out how much it was.
func (r room) giveUp(entry string) error { return r.discardAs(entry, undone) }

// begin makes the directory and the mark of an entry, in the trash, and gives
// it its name when it has both. That outlasts a loss of power, since what it is
// made for does. ErrExists.
func (r room) begin(ctx context.Context, m mark) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	born := trash + "/" + newbornName()
	for _, s := range []struct {
		what string
		do   func() error
	}{
		{"make a directory for it", func() error { return r.mkdir(born) }},
		{"make the place to mount it", func() error { return r.mkdir(born + "/" + treeName) }},
		{"write its mark", func() error { return r.writeFile(born+"/"+markName, m.text()) }},
		{"give it its name", func() error { return r.rename(born, m.kind+"/"+m.id) }},
	} {
		err := fault.Point(ctx, s.what)
		if err == nil {
			err = s.do()
		}
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTDIR) {
			err = &problem{kind: errs.ErrExists, why: "the id is taken"}
		}
		if err != nil {
			return errors.Join(err, r.erase(born))
		}
	}
	if err := r.sync(m.kind); err != nil {
		return errors.Join(err, r.giveUp(m.kind+"/"+m.id))
	}
	return nil
}

// valid refuses what cannot be an id before anything is made.
func valid(ids ...string) error {
	for _, id := range ids {
		if !snapshot.ValidID(id) {
			return &problem{kind: errs.ErrNotSupported, why: fmt.Sprintf("%q is not an id", id)}
		}
	}
	return nil
}

// Seal keeps the contract of [snapshot.Backend]. It is the same for both uses:
// the fork stays where it is, and its snapshot is one instant of it.
func (b *Backend) Seal(ctx context.Context, fork snapshot.ForkID, id snapshot.ID, _ snapshot.Use) (snapshot.Snapshot, error) {
	s, err := b.seal(ctx, string(fork), string(id))
	return s, fail("sealing", string(fork), err)
}

func (b *Backend) seal(ctx context.Context, fork, id string) (s snapshot.Snapshot, err error) {
	if err := valid(fork, id); err != nil {
		return s, err
	}
	r, err := b.enter()
	if err != nil {
		return s, absent(err)
	}
	defer r.Close()
	fm, err := r.load(forks, fork)
	if err == nil {
		err = running(fm.dataset)
	}
	if err == nil {
		err = r.reach(fm)
	}
	if err != nil {
		return s, err
	}
	m := fm
	m.kind, m.id, m.base, m.unique, m.taken = snapshots, id, "", unique(), vfs.Now()
	m.dataset = snapshotName(fm.dataset, m.unique)
	if err := r.takeOne(ctx, m, b.view(forks, fork, ".").Path); err != nil {
		return s, err
	}
	fm.base = id
	if err := r.replaceMark(ctx, fm); err != nil {
		return s, errors.Join(err, r.giveUp(snapshots+"/"+id))
	}
	return b.snapshotOf(m), nil
}

// replaceMark gives an entry another mark, wholly or not at all.
func (r room) replaceMark(ctx context.Context, m mark) error {
	if err := fault.Point(ctx, "write the new base"); err != nil {
		return err
	}
	tmp := trash + "/" + newbornName()
	err := r.writeFile(tmp, m.text())
	if err == nil {
		err = r.rename(tmp, m.kind+"/"+m.id+"/"+markName)
	}
	if err != nil {
		_ = unix.Unlinkat(r.fd(), tmp, 0) // else the sweeper will
		return err
	}
	return r.sync(m.kind + "/" + m.id)
}

// Lookup keeps the contract of [snapshot.Backend], and mounts the snapshot where
// it is not, after a reboot or in another mount namespace.
func (b *Backend) Lookup(_ context.Context, id snapshot.ID) (snapshot.Snapshot, error) {
	m, err := b.find(snapshots, string(id))
	return b.snapshotOf(m), fail("looking up", string(id), err)
}

// LookupFork keeps the contract of [snapshot.Backend], as Lookup does.
func (b *Backend) LookupFork(_ context.Context, id snapshot.ForkID) (snapshot.Fork, error) {
	m, err := b.find(forks, string(id))
	return b.forkOf(m), fail("looking up", string(id), err)
}

func (b *Backend) find(kind, id string) (mark, error) {
	r, err := b.enter()
	if err != nil {
		return mark{}, absent(err)
	}
	defer r.Close()
	m, err := r.find(kind, id)
	if err == nil {
		err = r.reach(m)
	}
	return m, err
}

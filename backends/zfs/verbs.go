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

// Capture makes the snapshot id of a tree, for [snapshot.Backend]: a ZFS snapshot of its dataset, with a hold
// on it. Cost: two transaction groups.
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
	r, err := b.openOrCreate()
	if err != nil {
		return s, err
	}
	defer r.Close()
	return b.snapshotOf(m), r.takeOne(ctx, m, tree.Path)
}

// captureOf returns the description of a new snapshot id of the real tree's dataset, after checking that its
// pool works. It makes nothing.
func captureOf(tree snapshot.Tree, id string) (mark, error) {
	src, err := findSource(tree.Path)
	if err == nil {
		err = checkName(src)
	}
	if err == nil {
		err = checkRunning(src.dataset)
	}
	u := unique()
	return mark{
		kind: snapshots, id: id, dataset: snapshotName(src.dataset, u), unique: u,
		source: src.dataset, tree: tree.Path, within: src.within, taken: vfs.Now(),
	}, err
}

// takeOne makes the snapshot m: its directory in the state directory, with the text file that describes it,
// and the ZFS snapshot of the dataset that contains the directory from. After an error there is neither.
func (r dataDir) takeOne(ctx context.Context, m mark, from string) error {
	return r.make(ctx, m, func() error {
		return snapAndHold(ctx, []cloned{{tree: from, base: m}}, func() error { return nil })
	})
}

// snap makes the ZFS snapshots called names, with unique as the value of snapfs's property, at one instant.
// from lists a directory in each of their datasets, whose mapped pages it first writes back.
func snap(ctx context.Context, from, names []string, unique string) error {
	for _, path := range from {
		if err := flush(path); err != nil {
			return err
		}
	}
	if err := fault.Point(ctx, "snapshot the dataset"); err != nil {
		return err
	}
	// The reply does not matter: of several attempts in one transaction group the last one counts.
	if _, done := callKernel(ctx, zfs.Snapshot, poolOf(names[0]), zfs.Pair{Name: "snaps", Value: each(names, nil)},
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
	said, done := callKernel(ctx, zfs.Hold, poolOf(names[0]), zfs.Pair{Name: "holds", Value: each(names, tag)})
	if done && zfs.NoZFSPairs(said) {
		return nil
	}
	_, err := zfsCmd(ctx, append([]string{"hold", tag}, names...)...)
	if done && errors.Is(err, errs.ErrExists) { // the reply was about an earlier attempt
		return nil
	}
	return err
}

// flush writes changed pages of mapped files to the ZFS dataset at path, because a snapshot does not contain
// them before their writeback.
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

// Fork makes the fork id of the snapshot from, for [snapshot.Backend], as a ZFS clone. Cost: a transaction
// group.
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
		return f, notFoundIfMissing(err)
	}
	defer r.Close()
	base, err := r.find(snapshots, from)
	if err == nil {
		err = checkImported(base.dataset)
	}
	if err != nil {
		return f, err
	}
	m := forkOfMark(base, id)
	return b.forkOf(m), r.makeFork(ctx, base, m)
}

func forkOfMark(base mark, id string) mark {
	m := base
	m.kind, m.id, m.base, m.unique = forks, id, base.id, unique()
	m.dataset = forkName(m.source, m.unique)
	return m
}

// makeFork makes the fork m: its directory, with the text file that describes it, and a clone of the snapshot
// base, which it mounts. After an error none of them remains.
func (r dataDir) makeFork(ctx context.Context, base, m mark) error {
	return r.make(ctx, m, func() error {
		err := r.clone(ctx, base.dataset, m)
		if errors.Is(err, errNoParent) { // a user has destroyed the dataset for forks
			if err := unix.Unlinkat(r.fd(), homeRecord(home(m.dataset)), 0); err != nil && err != unix.ENOENT {
				return err
			}
			err = r.clone(ctx, base.dataset, m)
		}
		return err
	})
}

func (r dataDir) clone(ctx context.Context, base string, m mark) error {
	if err := r.makeHome(ctx, home(m.dataset)); err != nil {
		return err
	}
	if err := fault.Point(ctx, "clone the snapshot"); err != nil {
		return err
	}
	props := []zfs.Pair{{Name: property, Value: m.unique}, {Name: "readonly", Value: uint64(0)}}
	if _, done := callKernel(ctx, zfs.Clone, m.dataset, zfs.Pair{Name: "origin", Value: base}, zfs.Pair{Name: "props", Value: props}); done {
		return nil
	}
	_, err := zfsCmd(ctx, "clone", "-o", marked(m.unique), "-o", "readonly=off", base, m.dataset)
	return err
}

// make makes the directory of the snapshot or fork m, with the text file that describes it, calls do, which
// makes the dataset, and mounts that. After an error the directory is gone.
func (r dataDir) make(ctx context.Context, m mark, do func() error) error {
	return r.entry(ctx, m, func() error {
		err := do()
		if err == nil {
			err = fault.Point(ctx, "mount the dataset")
		}
		if err == nil {
			err = r.ensureMounted(m)
		}
		return err
	})
}

// entry makes the directory of the snapshot or fork m, with the text file that describes it, and calls do,
// which makes the dataset. After an error the directory is gone.
func (r dataDir) entry(ctx context.Context, m mark, do func() error) error {
	if err := r.begin(ctx, m); err != nil {
		return err
	}
	if err := do(); err != nil {
		return errors.Join(err, r.giveUp(m.kind+"/"+m.id))
	}
	return nil
}

// giveUp moves entry, the directory of a half-made snapshot or fork, to the trash. Sweep then finds out which
// of its datasets exist, and destroys these.
func (r dataDir) giveUp(entry string) error { return r.discardAs(entry, undone) }

// begin makes the directory of the snapshot or fork m, with the text file that describes it, in the trash,
// and then renames it to its place. The directory survives a power loss, because a dataset made for it does
// too. Errors: ErrExists.
func (r dataDir) begin(ctx context.Context, m mark) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	born := trash + "/" + incompleteName()
	for _, s := range []struct {
		what string
		do   func() error
	}{
		{"make the entry", func() error { return r.mkdir(born) }},
		{"make the mount point", func() error { return r.mkdir(born + "/" + treeName) }},
		{"write the mark", func() error { return r.writeFile(born+"/"+markName, m.text()) }},
		{"name the entry", func() error { return r.rename(born, m.kind+"/"+m.id) }},
	} {
		err := fault.Point(ctx, s.what)
		if err == nil {
			err = s.do()
		}
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTDIR) {
			err = &errs.Error{Kind: errs.ErrExists, Err: errors.New("the id exists")}
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

// valid returns an error if an id of a snapshot or fork is malformed. Operations call it before they create
// anything.
func valid(ids ...string) error {
	for _, id := range ids {
		if !snapshot.ValidID(id) {
			return &errs.Error{Kind: errs.ErrNotSupported, Err: fmt.Errorf("%q is not a valid id", id)}
		}
	}
	return nil
}

// Seal makes the snapshot id of a fork, for [snapshot.Backend]: a ZFS snapshot, which is atomic, whether the
// fork is in use or not. The fork stays in place.
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
		return s, notFoundIfMissing(err)
	}
	defer r.Close()
	fm, err := r.load(forks, fork)
	if err == nil {
		err = checkRunning(fm.dataset)
	}
	if err == nil {
		err = r.ensureMounted(fm)
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

// replaceMark replaces the text file that describes a snapshot or fork by m, as when a seal gives a fork a
// new base. Atomic.
func (r dataDir) replaceMark(ctx context.Context, m mark) error {
	if err := fault.Point(ctx, "write the new base"); err != nil {
		return err
	}
	tmp := trash + "/" + incompleteName()
	err := r.writeFile(tmp, m.text())
	if err == nil {
		err = r.rename(tmp, m.kind+"/"+m.id+"/"+markName)
	}
	if err != nil {
		_ = unix.Unlinkat(r.fd(), tmp, 0) // otherwise Sweep deletes it
		return err
	}
	return r.sync(m.kind + "/" + m.id)
}

// Lookup returns the snapshot with this id, for [snapshot.Backend], and mounts it if necessary, as after a
// reboot or in another mount namespace.
func (b *Backend) Lookup(_ context.Context, id snapshot.ID) (snapshot.Snapshot, error) {
	m, err := b.find(snapshots, string(id))
	return b.snapshotOf(m), fail("looking up", string(id), err)
}

// LookupFork returns the fork with this id, for [snapshot.Backend], and mounts it if necessary.
func (b *Backend) LookupFork(_ context.Context, id snapshot.ForkID) (snapshot.Fork, error) {
	m, err := b.find(forks, string(id))
	return b.forkOf(m), fail("looking up", string(id), err)
}

func (b *Backend) find(kind, id string) (mark, error) {
	r, err := b.enter()
	if err != nil {
		return mark{}, notFoundIfMissing(err)
	}
	defer r.Close()
	m, err := r.find(kind, id)
	if err == nil {
		err = r.ensureMounted(m)
	}
	return m, err
}

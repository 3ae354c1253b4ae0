//go:build linux

package btrfs

import (
	"context"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
)

func baseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// descent returns the ancestors of the subvolume of the snapshot or fork that m describes, by which it can be
// compared with others. born is the number of the btrfs transaction that created the subvolume.
func (m mark) descent(born uint64) []ancestor {
	line := m.line[:len(m.line):len(m.line)]
	if m.from != "" {
		line = append(line, ancestor{m.from, born})
	}
	return line
}

// load reads the mark, the text file that describes the snapshot or fork id, and the attributes of its
// subvolume; kind is the parent directory. Errors: ErrNotFound, ErrCorrupt.
func (r dataDir) load(kind, id string) (mark, btrfs.Subvolume, error) {
	if !snapshot.ValidID(id) {
		return mark{}, btrfs.Subvolume{}, notFound("not a valid id")
	}
	m, info, err := r.loadAt(kind + "/" + id)
	if err == nil && m.kind != kind {
		err = notFound("the mark is of another kind of entry")
	}
	return m, info, err
}

func (r dataDir) loadAt(path string) (mark, btrfs.Subvolume, error) {
	fd, err := r.open(path + "/" + treeName)
	if err != nil {
		return mark{}, btrfs.Subvolume{}, notFoundIfMissing(err)
	}
	defer unix.Close(fd)
	m, err := r.readMark(path)
	if errors.Is(err, os.ErrNotExist) {
		err = notFound("the entry has no mark")
	}
	if err != nil {
		return m, btrfs.Subvolume{}, err
	}
	info, err := btrfs.Info(fd)
	if err != nil {
		return m, info, &os.PathError{Op: "read the subvolume's information", Path: path, Err: err}
	}
	return m, info, nil
}

// notFoundIfMissing returns ErrNotFound, for a snapshot or fork that is missing, if err means that a path
// does not exist. Other errors it returns as they are.
func notFoundIfMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return notFound("not found")
	}
	return err
}

func (r dataDir) has(kind, id string) bool {
	return unix.Faccessat(r.fd, kind+"/"+id, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// Fork makes the fork id of the snapshot from, for [snapshot.Backend]. Cost: one transaction commit, or a
// rename of 20 µs if [Backend.Prefork] has made a fork in advance.
func (b *Backend) Fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
	f, err := b.fork(ctx, from, id)
	return f, b.fail("forking", string(id), err)
}

func (b *Backend) fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
	if err := valid(string(from), string(id)); err != nil {
		return snapshot.Fork{}, err
	}
	r, err := b.enter()
	if err != nil {
		return snapshot.Fork{}, notFoundIfMissing(err)
	}
	defer r.close()
	m, info, err := r.load(snapshots, string(from))
	if err != nil {
		return snapshot.Fork{}, err
	}
	fm := forkMark(from, m, info)
	if got, err := r.claimReadyMade(ctx, string(from), string(id)); err != nil || got {
		return b.forkOf(id, fm), err
	}
	err = r.makeFork(ctx, string(from), forks, string(id), fm)
	return b.forkOf(id, fm), err
}

// forkMark returns the description to store of a fork of the snapshot from, whose description is m and whose
// subvolume is info.
func forkMark(from snapshot.ID, m mark, info btrfs.Subvolume) mark {
	m.kind, m.base, m.line, m.from = forks, string(from), m.descent(info.Born), ""
	return m
}

// makeFork makes a writable copy of the snapshot from under the name id, with the description m. kind is
// forks, or the directory for forks that are made in advance.
func (r dataDir) makeFork(ctx context.Context, from, kind, id string, m mark) error {
	source := snapshots + "/" + from
	src, err := r.open(source + "/" + treeName)
	if err != nil {
		return notFoundIfMissing(err)
	}
	defer unix.Close(src)
	e, err := r.begin(ctx, kind, id, m)
	if err != nil {
		return err
	}
	defer e.close()
	if err := e.copyFrom(ctx, origin{src, m.within, source}, false); err != nil {
		return errors.Join(err, e.giveUp())
	}
	return nil
}

// Seal makes the snapshot id of a fork, for [snapshot.Backend]: a btrfs snapshot, which is atomic, whether
// the fork is in use or not. The fork stays in place.
func (b *Backend) Seal(ctx context.Context, fork snapshot.ForkID, id snapshot.ID, _ snapshot.Use) (snapshot.Snapshot, error) {
	s, err := b.seal(ctx, fork, id)
	return s, b.fail("sealing", string(fork), err)
}

func (b *Backend) seal(ctx context.Context, fork snapshot.ForkID, id snapshot.ID) (snapshot.Snapshot, error) {
	if err := valid(string(fork), string(id)); err != nil {
		return snapshot.Snapshot{}, err
	}
	r, err := b.enter()
	if err != nil {
		return snapshot.Snapshot{}, notFoundIfMissing(err)
	}
	defer r.close()
	path := forks + "/" + string(fork)
	fm, info, err := r.load(forks, string(fork))
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	src, err := r.open(path + "/" + treeName)
	if err != nil {
		return snapshot.Snapshot{}, notFoundIfMissing(err)
	}
	defer unix.Close(src)
	sm := fm
	sm.kind, sm.base, sm.taken, sm.from, sm.line = snapshots, "", vfs.Now(), info.UUID.String(), fm.descent(info.Born)
	e, err := r.begin(ctx, snapshots, string(id), sm)
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	defer e.close()
	if err := e.copyFrom(ctx, origin{src, fm.within, path}, true); err != nil {
		return snapshot.Snapshot{}, errors.Join(err, e.giveUp())
	}
	fm.base = string(id)
	if err := r.replaceMark(ctx, path, fm); err != nil {
		return snapshot.Snapshot{}, errors.Join(err, e.giveUp())
	}
	return b.snapshotOf(id, sm), nil
}

// replaceMark replaces the text file that describes the snapshot or fork at path by m, as when a seal gives a
// fork a new base. Atomic.
func (r dataDir) replaceMark(ctx context.Context, path string, m mark) error {
	if err := fault.Point(ctx, "write the new base"); err != nil {
		return err
	}
	tmp := path + "/" + markName + "." + unique()
	err := r.writeMark(tmp, m)
	if err == nil {
		err = unix.Renameat(r.fd, tmp, r.fd, path+"/"+markName)
	}
	if err != nil {
		_ = unix.Unlinkat(r.fd, tmp, 0) // otherwise it is removed with the entry
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// Lookup returns the snapshot with this id, for [snapshot.Backend]. ErrNotFound means that there is none.
func (b *Backend) Lookup(_ context.Context, id snapshot.ID) (snapshot.Snapshot, error) {
	m, err := b.find(snapshots, string(id))
	return b.snapshotOf(id, m), b.fail("looking up", string(id), err)
}

// LookupFork returns the fork with this id, for [snapshot.Backend]. ErrNotFound means that there is none.
func (b *Backend) LookupFork(_ context.Context, id snapshot.ForkID) (snapshot.Fork, error) {
	m, err := b.find(forks, string(id))
	return b.forkOf(id, m), b.fail("looking up", string(id), err)
}

func (b *Backend) find(kind, id string) (mark, error) {
	r, err := b.enter()
	if err != nil {
		return mark{}, notFoundIfMissing(err)
	}
	defer r.close()
	m, _, err := r.load(kind, id)
	return m, err
}

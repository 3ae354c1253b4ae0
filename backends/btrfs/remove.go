//go:build linux

package btrfs

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/qgroup"
	"github.com/snapfs/snapfs/internal/subvol"
)

// List returns the ids of all snapshots and forks in the data directory, for [snapshot.Backend].
func (b *Backend) List(context.Context) ([]snapshot.ID, []snapshot.ForkID, error) {
	r, err := b.enter()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, b.fail("listing", "", err)
	}
	defer r.close()
	ids, err := names[snapshot.ID](r, snapshots)
	if err != nil {
		return nil, nil, b.fail("listing", "", err)
	}
	grown, err := names[snapshot.ForkID](r, forks)
	return ids, grown, b.fail("listing", "", err)
}

func names[T ~string](r dataDir, kind string) ([]T, error) {
	all, err := r.list(kind)
	var ids []T
	for _, name := range all {
		if snapshot.ValidID(name) && r.hasMark(kind, name) {
			ids = append(ids, T(name))
		}
	}
	slices.Sort(ids)
	return ids, err
}

// hasMark reports whether the snapshot or fork id, in the directory kind, has this backend's ownership mark.
// Other files and directories are never touched, whatever their names.
func (r dataDir) hasMark(kind, id string) bool {
	if kind == stock {
		kind = snapshots // stock/<id> belongs to the snapshot id
	}
	if r.isMarkOf(kind, kind+"/"+id) {
		return true
	}
	m, err := r.readMark(kind + "/" + id)
	return err == nil && m.kind == kind || errors.Is(err, errs.ErrCorrupt)
}

// Remove removes the snapshot id, for [snapshot.Backend]: it renames the snapshot, and forks that were made
// of it in advance, into the trash. [Backend.Sweep] frees the space.
func (b *Backend) Remove(ctx context.Context, id snapshot.ID) error {
	return b.fail("removing", string(id), b.remove(ctx, string(id), stock, snapshots))
}

// RemoveFork removes the fork id, for [snapshot.Backend], by renaming the fork's directory into the trash. It
// cannot detect whether the fork is in use.
func (b *Backend) RemoveFork(ctx context.Context, id snapshot.ForkID) error {
	return b.fail("removing", string(id), b.remove(ctx, string(id), forks))
}

func (b *Backend) remove(ctx context.Context, id string, kinds ...string) error {
	if err := ctx.Err(); err != nil || !snapshot.ValidID(id) {
		return err
	}
	r, err := b.enter()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.close()
	for _, kind := range kinds {
		if !r.hasMark(kind, id) {
			continue
		}
		if err := fault.Point(ctx, "move the entry to the trash"); err != nil {
			return err
		}
		if err := r.discard(kind+"/"+id, id); err != nil {
			return err
		}
	}
	return nil
}

// Bounds of the rate at which Sweep deletes btrfs subvolumes: after each sweepBatch of them it pauses for
// sweepPause or longer. The commit of the next creation has to execute all pending deletions, and would
// otherwise take seconds.
const (
	sweepBatch = 8
	sweepPause = 20 * time.Millisecond
	// sweepQueue is the largest number of removed subvolumes that may wait for the kernel's cleaner thread
	// before Sweep deletes more.
	sweepQueue = 64
)

// Sweep deletes the snapshots and forks in the trash, for [snapshot.Backend]. The space of the last deletions
// is free after the filesystem's commit interval of 30 seconds.
func (b *Backend) Sweep(ctx context.Context) error {
	r, err := b.enter()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return b.fail("sweeping", "", err)
	}
	defer r.close()
	return b.fail("sweeping", "", r.sweep(ctx))
}

// Pending reports whether Sweep has work, for [snapshot.Backend]. It always returns true, because every
// removal leaves a subvolume in the trash.
func (b *Backend) Pending() bool { return true }

func (r dataDir) sweep(ctx context.Context) error {
	names, err := r.list(trash)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		by, is := strings.CutPrefix(name, newborn)
		return is && proc.NameRuns(by)
	})
	for i, name := range names {
		if i > 0 && i%sweepBatch == 0 {
			if err := r.rest(ctx); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fault.Point(ctx, "destroy a subvolume"); err != nil {
			return err
		}
		// ErrNotExist: another process has deleted it.
		if err := r.destroy(trash + "/" + name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return qgroup.Sweep(r.fd)
}

// rest lets Sweep pause until at most sweepQueue (64) removed subvolumes wait for the kernel's cleaner
// thread. The next commit would otherwise take long.
func (r dataDir) rest(ctx context.Context) error {
	pause := time.NewTimer(sweepPause)
	defer pause.Stop()
	for poked := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
		n, err := btrfs.Queue(r.fd)
		if err != nil || n <= sweepQueue { // an old kernel does not report the queue
			return nil
		}
		if !poked {
			poked = true
			if err := btrfs.Commit(r.fd); err != nil {
				return err
			}
		}
		pause.Reset(5 * sweepPause)
	}
}

// destroy deletes the file or directory at path, a removed snapshot or fork in the trash, with all its
// content. It may run concurrently in several processes.
func (r dataDir) destroy(path string) error {
	dir, err := r.open(path)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		err = unix.Unlinkat(r.fd, path, 0)
	}
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	f := os.NewFile(uintptr(dir), path)
	defer f.Close()
	inside, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range inside {
		if err := r.destroyIn(dir, path, name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	err = unix.Unlinkat(r.fd, path, unix.AT_REMOVEDIR)
	if err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// destroyIn deletes the entry name of the directory dir, whose path is path, in the trash: a file, a
// subvolume, or a directory with its content.
func (r dataDir) destroyIn(dir int, path, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return unix.Unlinkat(dir, name, 0)
	case st.Ino == btrfs.RootInode:
		return subvol.Remove(dir, name, r.unlimit)
	}
	return r.destroy(path + "/" + name)
}

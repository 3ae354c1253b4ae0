//go:build linux

package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/qgroup"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// The image is sparse: the host's disk can be full while the pool has free space, and btrfs then
// loses data that it has acknowledged. So the pool leaves a part of the host's filesystem free, the
// reserve. When only the reserve is left, nothing is forked or imported. All data of forks is
// limited, by a quota group one level above theirs, to its present size and the host's free space
// beyond the reserve. [Pool.Maintain] updates this limit.
//
// The members of the group are the subvolumes in which forks are made, and with them all forks: the
// kernel adds a new subvolume to the groups of the one that it is made in.

// reserveOf returns the bytes that a pool leaves free on a host filesystem of size bytes: 5 %, at least 1 GiB
// and at most 10 GiB.
func reserveOf(size int64) int64 { return min(max(size/20, 1<<30), 10<<30) }

// host returns the free bytes of the filesystem that holds the pool's file, and how many of them the pool
// must leave free.
func (p *Pool) host() (free, reserve int64, err error) {
	fs, err := mount.FilesystemOf(p.image())
	return fs.Avail, reserveOf(fs.Size), err
}

// hostHasRoom returns ErrNoSpace if growing the pool's file by need bytes would leave less free on the host's
// disk than the pool's reserve.
func (p *Pool) hostHasRoom(need int64) error {
	free, reserve, err := p.host()
	if err != nil || free-need > reserve {
		return err
	}
	return &errs.Error{
		Kind:  errs.ErrNoSpace,
		Err:   fmt.Errorf("the disk below the pool's image has %v free, of which the pool leaves %v free", snapshot.Bytes(free), snapshot.Bytes(reserve)),
		Hints: []string{"snapfs gc", "snapfs rm SANDBOX", "df -h " + errs.Quoted(p.Dir)},
	}
}

// Growing checks, before the new fork id is made, that the host's disk has more space free than the pool must
// leave there, because the pool's file grows with the fork. It limits the space of all forks to the rest.
// Errors: ErrNoSpace.
func (p *Pool) Growing(ctx context.Context, id snapshot.ForkID) error {
	err := p.hostHasRoom(0)
	if err == nil {
		err = p.limitForks(ctx)
	}
	return failed("forking", string(id), p.Dir, err)
}

// Maintain limits the data of all forks together to the space that the host's disk has now, because the
// pool's file grows with them. The engine calls it for each new fork, and regularly while processes run in
// one. It does nothing on a kernel without btrfs simple quotas. Cost: some system calls.
func (p *Pool) Maintain(ctx context.Context) error {
	return failed("limiting the forks on", p.Name, p.mnt(), p.limitForks(ctx))
}

func (p *Pool) limitForks(ctx context.Context) error {
	top, err := os.Open(p.mnt())
	if err != nil {
		return err
	}
	defer top.Close()
	fd := int(top.Fd())
	if err := p.makeLayers(fd); err != nil {
		return err
	}
	if mode, err := btrfs.QuotaModeOf(fd); err != nil || mode != btrfs.QuotaSimple {
		return err
	}
	for _, name := range []string{".snapfs", filepath.Base(p.Layers())} {
		root, err := vfs.OpenBeneath(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue // there is no fork yet
		}
		if err != nil {
			return err
		}
		st, err := vfs.Lstat(int(root.Fd()), "")
		if err == nil && st.Ino == btrfs.RootInode { // a plain directory belongs to the subvolume of the user's trees
			err = qgroup.Gather(ctx, fd, int(root.Fd()), qgroup.All)
		}
		root.Close()
		if err != nil {
			return err
		}
	}
	used, err := qgroup.Used(fd, qgroup.All)
	if err != nil {
		return err
	}
	free, reserve, err := p.host()
	if err != nil {
		return err
	}
	return btrfs.Limit(fd, qgroup.All, used+max(0, free-reserve))
}

// makeLayers makes the directory for overlay layers a btrfs subvolume of its own, before anything is made in
// it; in a plain directory, layers would count for the subvolume of the user's trees. top is the descriptor
// of the pool's root.
func (p *Pool) makeLayers(top int) error {
	if err := btrfs.Create(top, filepath.Base(p.Layers())); err != nil && !errors.Is(err, os.ErrExist) {
		return &os.PathError{Op: "make the subvolume", Path: p.Layers(), Err: err}
	}
	return nil
}

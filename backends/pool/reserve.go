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

// The image is sparse: the host's disk can be full while the pool has room, and btrfs
// then loses what it has promised to keep. So the pool leaves a part of the host's
// filesystem free. Below that nothing is forked or imported, and all that forks add is
// held, in a group of a level above theirs, to what they hold and what is free beyond
// the reserve. [Pool.Tend] measures it anew.
//
// In the group are the subvolumes that forks are made in, and with them the forks:
// the kernel puts a subvolume into the groups of the one that it is made in.

// reserveOf is what is left free of a filesystem of that size: 5 %, but 1 GiB at least
// and 10 GiB at most.
func reserveOf(size int64) int64 { return min(max(size/20, 1<<30), 10<<30) }

// host says what is free on the filesystem that the image lies on, and what of it is
// the reserve.
func (p *Pool) host() (free, reserve int64, err error) {
	fs, err := mount.FilesystemOf(p.image())
	return fs.Avail, reserveOf(fs.Size), err
}

// hostHasRoom says whether need bytes may be added to the pool.
func (p *Pool) hostHasRoom(need int64) error {
	free, reserve, err := p.host()
	if err != nil || free-need > reserve {
		return err
	}
	return &problem{
		errs.ErrNoSpace,
		fmt.Sprintf("the disk that the pool's image lies on has %v free, and the pool leaves %v of it", snapshot.Bytes(free), snapshot.Bytes(reserve)),
		[]string{"snapfs gc", "snapfs rm SANDBOX", "df -h " + p.Dir},
	}
}

// Growing is called before another fork is made. Errors: ErrNoSpace: the host has no
// more than the reserve.
func (p *Pool) Growing(ctx context.Context, id snapshot.ForkID) error {
	err := p.hostHasRoom(0)
	if err == nil {
		err = p.tend(ctx)
	}
	return failed("forking", string(id), p.Dir, err)
}

// Tend holds what all forks add to what the host has room for now. It is done when a
// fork is made, and now and then while something runs in one. It does nothing where
// the kernel cannot hold it. Cost: some system calls.
func (p *Pool) Tend(ctx context.Context) error {
	return failed("holding", p.Name, p.mnt(), p.tend(ctx))
}

func (p *Pool) tend(ctx context.Context) error {
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
			continue // nothing was forked yet
		}
		if err != nil {
			return err
		}
		st, err := vfs.Lstat(int(root.Fd()), "")
		if err == nil && st.Ino == btrfs.RootInode { // else it is a part of what holds the user's trees
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

// makeLayers makes the subvolume for layers, before anything is made in it: a directory
// in its place would be counted with the subvolume that the user's trees are made in.
func (p *Pool) makeLayers(top int) error {
	if err := btrfs.Create(top, filepath.Base(p.Layers())); err != nil && !errors.Is(err, os.ErrExist) {
		return &os.PathError{Op: "make the subvolume", Path: p.Layers(), Err: err}
	}
	return nil
}

//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/bench/tree"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
)

// borrow returns a tree with this many files for the setting s: an existing one, or a new one that giveBack
// removes.
func (l *lab) borrow(ctx context.Context, s setting, files int) (dir string, giveBack func() error, err error) {
	dir = treeOf(s, files)
	if _, err := os.Stat(dir); err == nil {
		return dir, func() error { return nil }, nil
	}
	dir, err = l.plant(ctx, s, files)
	return dir, func() error { return uproot(dir) }, err
}

func treeOf(s setting, files int) string { return filepath.Join(s.Dir, fmt.Sprintf("tree-%d", files)) }

// plant makes a tree with this many files for the setting s. On btrfs the tree is a subvolume for root, and
// for other users a directory in the user's own subvolume.
func (l *lab) plant(ctx context.Context, s setting, files int) (string, error) {
	dir := treeOf(s, files)
	l.Say(fmt.Sprintf("%s: making a tree of %d files", s.Name, files))
	if err := makeTop(dir); err != nil {
		return "", err
	}
	if err := tree.Grow(dir, files); err != nil {
		return dir, errors.Join(err, uproot(dir))
	}
	return dir, errors.Join(vfs.SyncFSOf(dir), ctx.Err())
}

func makeTop(dir string) error {
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer parent.Close()
	if on, err := btrfs.Is(int(parent.Fd())); err != nil || !on || os.Geteuid() != 0 {
		return errors.Join(err, os.Mkdir(dir, 0o755))
	}
	return makeSubvolume(int(parent.Fd()), dir)
}

// makeSubvolume makes a btrfs subvolume dir, in the subvolume open as parent, and mounts it, as /home often
// is, because the trees of a sandbox begin at mount points.
func makeSubvolume(parent int, dir string) error {
	if err := btrfs.Create(parent, filepath.Base(dir)); err != nil {
		return err
	}
	mnt, err := mount.CloneTree(dir)
	if err != nil {
		return err
	}
	defer mnt.Close()
	return mount.MoveMount(mnt, dir)
}

// uproot removes dir, a tree of files made for a measurement; if the tree is a btrfs subvolume, as a whole.
func uproot(dir string) error {
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer parent.Close()
	if on, err := btrfs.Is(int(parent.Fd())); err == nil && on && os.Geteuid() == 0 {
		if err := mount.Unmount(dir); err != nil {
			return err
		}
		return destroy(int(parent.Fd()), filepath.Base(dir))
	}
	return os.RemoveAll(dir)
}

// destroy removes the subvolume called name in the directory parent with all subvolumes in it: snapfs stores
// there the newest snapshot of a workspace, and the forks that it makes in advance.
func destroy(parent int, name string) error {
	top, err := vfs.OpenDir(parent, name)
	if err != nil {
		return err
	}
	defer top.Close()
	nested, err := btrfs.Nested(int(top.Fd()))
	if err != nil {
		return err
	}
	for _, path := range nested {
		dir, err := vfs.OpenDir(int(top.Fd()), filepath.Dir(path))
		if err != nil {
			return err
		}
		err = destroy(int(dir.Fd()), filepath.Base(path))
		dir.Close()
		if err != nil {
			return err
		}
	}
	return btrfs.Destroy(parent, name)
}

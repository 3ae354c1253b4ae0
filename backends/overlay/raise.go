//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A raiser brings what lies below into the uppermost layer.
type raiser struct {
	ctx    context.Context
	upper  *os.File // the layer
	prefix string   // of overlayfs's attributes
	tree   string
	need   int64 // bytes
	// first are the names of files with several, and links the further ones of each: overlayfs
	// would make a file of its own of every name.
	first map[fileID]string
	links []linkOf
}

type fileID struct{ dev, ino uint64 }

// A linkOf is a further name of a file.
type linkOf struct{ name, first string }

// copyAll has the kernel copy up, in a mount of the fork. Before it begins it looks whether there is
// room.
func (r *raiser) copyAll(root int, what []snapshot.Borrowed) error {
	for _, do := range []func(dir int, last, name string, st *vfs.Stat) error{r.weigh, r.copyUp} {
		clear(r.first)
		r.links = nil
		for _, one := range what {
			if err := r.place(root, one.Path, do); err != nil {
				return err
			}
		}
		if err := r.fits(); err != nil {
			return err
		}
		r.need = 0
	}
	return nil
}

// place does something with each node at a path of the mount, a directory before what lies in it.
func (r *raiser) place(root int, name string, do func(dir int, last, name string, st *vfs.Stat) error) error {
	dir, err := vfs.OpenBeneath(root, path.Dir(name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return r.each(int(dir.Fd()), path.Base(name), name, do)
}

func (r *raiser) each(dir int, last, name string, do func(dir int, last, name string, st *vfs.Stat) error) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	st, err := vfs.Lstat(dir, last)
	if err != nil {
		return err
	}
	if err := do(dir, last, name, &st); err != nil || !st.IsDir() {
		return err
	}
	sub, err := vfs.OpenDir(dir, last)
	if err != nil {
		return err
	}
	defer sub.Close()
	list, err := vfs.Entries(int(sub.Fd()))
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := r.each(int(sub.Fd()), e.Name, join(name, []byte(e.Name)), do); err != nil {
			return err
		}
	}
	return nil
}

// again reports whether a file has been come across by another name.
func (r *raiser) again(name string, st *vfs.Stat) bool {
	if !st.IsRegular() || st.Nlink < 2 {
		return false
	}
	key := fileID{st.Dev, st.Ino}
	first, known := r.first[key]
	if !known {
		r.first[key] = name
	} else if first != name {
		r.links = append(r.links, linkOf{name, first})
	}
	return known
}

// weigh counts what is not in the layer yet.
func (r *raiser) weigh(_ int, _, name string, st *vfs.Stat) error {
	if !st.IsRegular() || r.again(name, st) {
		return nil
	}
	node, err := beneath(r.upper, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err == nil {
		defer node.Close()
		if _, err = vfs.GetXattr(int(node.Fd()), "", r.prefix+"metacopy"); err != nil {
			return nil // it has its content
		}
	}
	r.need += st.Blocks * 512
	return nil
}

// fits refuses what there is no room for. Where blocks can be shared nobody knows before.
func (r *raiser) fits() error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(r.upper.Fd()), &fs); err != nil {
		return failed("statfs", r.tree, err)
	}
	if fs.Type == unix.BTRFS_SUPER_MAGIC || fs.Type == unix.XFS_SUPER_MAGIC || uint64(r.need) <= fs.Bavail*uint64(fs.Bsize) {
		return nil
	}
	return because(errs.ErrNoSpace, r.tree, "there is no room for a copy of what was renamed", "snapfs gc")
}

// copyUp copies one node up, whole. A file is opened to be written to, and is not; another node is
// given the times that it has.
func (r *raiser) copyUp(dir int, last, name string, st *vfs.Stat) error {
	if r.again(name, st) {
		return nil
	}
	if !st.IsRegular() {
		times := []unix.Timespec{
			{Sec: st.ATime.Sec, Nsec: int64(st.ATime.Nsec)},
			{Sec: st.MTime.Sec, Nsec: int64(st.MTime.Nsec)},
		}
		return failed("utimes", name, unix.UtimesNanoAt(dir, last, times, unix.AT_SYMLINK_NOFOLLOW))
	}
	fd, err := unix.Openat(dir, last, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed("open", path.Join(r.tree, name), err)
	}
	return unix.Close(fd)
}

// cutOff takes what was brought up apart from what lies below, in the layer, which is not mounted.
func (r *raiser) cutOff(what []snapshot.Borrowed) error {
	for _, l := range r.links {
		if err := r.link(l); err != nil {
			return err
		}
	}
	if err := failed("syncfs", r.tree, unix.Syncfs(int(r.upper.Fd()))); err != nil {
		return err
	}
	for _, one := range what {
		if !one.Tree {
			continue
		}
		err := fault.Point(r.ctx, "part a directory")
		if err == nil {
			err = r.opaque(one.Path)
		}
		if err != nil {
			return err
		}
	}
	return failed("syncfs", r.tree, unix.Syncfs(int(r.upper.Fd())))
}

// link gives a file in the layer a further name, unless it has it.
func (r *raiser) link(l linkOf) error {
	dir, err := beneath(r.upper, path.Dir(l.name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer dir.Close()
	first, err := beneath(r.upper, l.first, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer first.Close()
	before, err := vfs.Lstat(int(dir.Fd()), "")
	if err != nil {
		return err
	}
	err = unix.Linkat(int(first.Fd()), "", int(dir.Fd()), path.Base(l.name), unix.AT_EMPTY_PATH)
	if errors.Is(err, fs.ErrExist) {
		return nil // it has one, whole or of its own
	}
	if err != nil {
		return failed("link", l.name, err)
	}
	return setTimes(int(dir.Fd()), l.name, before)
}

// opaque has a directory of the layer hide what lies below.
func (r *raiser) opaque(name string) error {
	dir, err := beneath(r.upper, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := vfs.SetXattr(int(dir.Fd()), "", r.prefix+"opaque", []byte("y"), 0); err != nil {
		return err
	}
	err = vfs.RemoveXattr(int(dir.Fd()), "", r.prefix+"redirect")
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

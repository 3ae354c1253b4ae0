//go:build linux

package diff

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Detach makes a fork independent of those entries of the lower tree, listed in what, that it reads under
// another name. It copies them into upper, the fork's upper layer: mounted mounts the fork, and the kernel
// copies there. Then it removes their redirects.
func Detach(ctx context.Context, how Mode, upper, tree string, what []snapshot.Borrowed, mounted func(do func(root int) error) error) error {
	dir, err := vfs.OpenDir(unix.AT_FDCWD, upper)
	if err != nil {
		return err
	}
	defer dir.Close()
	up := detacher{ctx: ctx, upper: dir, prefix: how.Prefix, tree: tree, first: map[fileID]string{}}
	err = mounted(func(root int) error {
		if err := fault.Point(ctx, "copy the entries up"); err != nil {
			return err
		}
		return up.copyAll(root, what)
	})
	if err == nil {
		err = fault.Point(ctx, "remove the redirects")
	}
	if err != nil {
		return err
	}
	return up.removeRedirects(what)
}

// A detacher is the state of one [Detach]: it copies entries of the lower tree into a fork's upper layer.
type detacher struct {
	ctx    context.Context
	upper  *os.File // the upper layer
	prefix string   // of overlayfs's attributes
	tree   string
	need   int64 // bytes
	// first maps an inode with several links to the first name found; links holds its other
	// names. Overlayfs would copy up each name as a separate file.
	first map[fileID]string
	links []linkOf
}

type fileID struct{ dev, ino uint64 }

// A linkOf is a further name of a file with several hard links, of which only one is copied into the upper
// layer: name is to become a hard link to the copy, which is at the path first.
type linkOf struct{ name, first string }

// copyAll lets the kernel copy up the entries in what, in a mount of the fork whose root is the descriptor
// root. It first checks the free space.
func (r *detacher) copyAll(root int, what []snapshot.Borrowed) error {
	for _, do := range []func(dir int, last, name string, st *vfs.Stat) error{r.countBytes, r.copyUp} {
		clear(r.first)
		r.links = nil
		for _, one := range what {
			if err := r.eachAt(root, one.Path, do); err != nil {
				return err
			}
		}
		if err := r.checkSpace(); err != nil {
			return err
		}
		r.need = 0
	}
	return nil
}

// eachAt calls do for each entry of the subtree name in the mount with the descriptor root, a directory
// before its entries. do gets the descriptor of the entry's directory, its last name, and its path.
func (r *detacher) eachAt(root int, name string, do func(dir int, last, name string, st *vfs.Stat) error) error {
	dir, err := vfs.OpenBeneath(root, path.Dir(name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return r.each(int(dir.Fd()), path.Base(name), name, do)
}

func (r *detacher) each(dir int, last, name string, do func(dir int, last, name string, st *vfs.Stat) error) error {
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
		if err := r.each(int(sub.Fd()), e.Name, store.Join(name, []byte(e.Name)), do); err != nil {
			return err
		}
	}
	return nil
}

// seen reports whether the file name, which has several hard links, was found before under another name. It
// then notes that name must become a link to that file.
func (r *detacher) seen(name string, st *vfs.Stat) bool {
	if !st.IsRegular() || st.Nlink < 2 {
		return false
	}
	key := fileID{st.Dev, st.Ino}
	first, recordCache := r.first[key]
	if !recordCache {
		r.first[key] = name
	} else if first != name {
		r.links = append(r.links, linkOf{name, first})
	}
	return recordCache
}

// countBytes adds the size of the file name, if it is not in the upper layer yet, to the bytes that a copy up
// will need, for the check of free space.
func (r *detacher) countBytes(_ int, _, name string, st *vfs.Stat) error {
	if !st.IsRegular() || r.seen(name, st) {
		return nil
	}
	node, err := store.OpenIn(r.upper, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err == nil {
		defer node.Close()
		if _, err = vfs.GetXattr(int(node.Fd()), "", r.prefix+"metacopy"); err != nil { // the upper has the content
			return nil // it has its content
		}
	}
	r.need += st.Blocks * 512
	return nil
}

// checkSpace returns ErrNoSpace if the files to copy do not fit on the disk. It skips the
// check on a filesystem that shares blocks.
func (r *detacher) checkSpace() error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(r.upper.Fd()), &fs); err != nil {
		return store.PathError("statfs", r.tree, err)
	}
	if fs.Type == unix.BTRFS_SUPER_MAGIC || fs.Type == unix.XFS_SUPER_MAGIC || uint64(r.need) <= fs.Bavail*uint64(fs.Bsize) {
		return nil
	}
	return store.Refuse(errs.ErrNoSpace, r.tree, "no space for a copy of the renamed files", "snapfs gc")
}

// copyUp makes the kernel copy the entry last of the directory dir up, with its content: it opens a file for
// writing and writes nothing, and sets the times of any other entry to their present values. name is the
// entry's path in the tree.
func (r *detacher) copyUp(dir int, last, name string, st *vfs.Stat) error {
	if r.seen(name, st) {
		return nil
	}
	if !st.IsRegular() {
		times := []unix.Timespec{
			{Sec: st.ATime.Sec, Nsec: int64(st.ATime.Nsec)},
			{Sec: st.MTime.Sec, Nsec: int64(st.MTime.Nsec)},
		}
		return store.PathError("utimes", name, unix.UtimesNanoAt(dir, last, times, unix.AT_SYMLINK_NOFOLLOW))
	}
	fd, err := unix.Openat(dir, last, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return store.PathError("open", path.Join(r.tree, name), err)
	}
	return unix.Close(fd)
}

// removeRedirects removes the redirect attributes of the entries in what from the upper layer, which must not
// be mounted.
func (r *detacher) removeRedirects(what []snapshot.Borrowed) error {
	for _, l := range r.links {
		if err := r.link(l); err != nil {
			return err
		}
	}
	if err := store.PathError("syncfs", r.tree, unix.Syncfs(int(r.upper.Fd()))); err != nil {
		return err
	}
	for _, one := range what {
		if !one.Tree {
			continue
		}
		err := fault.Point(r.ctx, "detach a directory")
		if err == nil {
			err = r.opaque(one.Path)
		}
		if err != nil {
			return err
		}
	}
	return store.PathError("syncfs", r.tree, unix.Syncfs(int(r.upper.Fd())))
}

// link makes the hard link l in the upper layer: another name of a file that was copied there once. It does
// nothing if the name exists.
func (r *detacher) link(l linkOf) error {
	dir, err := store.OpenIn(r.upper, path.Dir(l.name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer dir.Close()
	first, err := store.OpenIn(r.upper, l.first, unix.O_PATH|unix.O_NOFOLLOW)
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
		return nil // the name exists, as a link or as a file of its own
	}
	if err != nil {
		return store.PathError("link", l.name, err)
	}
	return store.SetTimes(int(dir.Fd()), l.name, before)
}

// opaque marks the directory name of the upper layer as opaque: overlayfs then reads nothing of it from
// below.
func (r *detacher) opaque(name string) error {
	dir, err := store.OpenIn(r.upper, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
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

package plain

import (
	"errors"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// keepOpen is the number of nested directories that the copier has open at once, in the source
// and in the copy. It closes outer ones and reopens them through ".." on the way up, so that
// neither PATH_MAX nor the limit on descriptors bounds the depth of a tree.
const keepOpen = 64

// A level is a directory that a copier has begun to copy, with its entries still to do. The copier has one
// for each directory from the root to the present one.
type level struct {
	name     string
	src, dst int // descriptors, or -1 if closed
	stat     vfs.Stat
	dstIs    inode
	todo     []vfs.Entry
}

// descend makes the open directory src, called name, and its copy dst, the one that run copies next. The
// copier then owns both descriptors.
func (c *copier) descend(name string, src, dst int, st *vfs.Stat) error {
	l := &level{name: name, src: src, dst: dst, stat: *st}
	c.trail = append(c.trail, l)
	is, err := vfs.Lstat(dst, "")
	if err != nil {
		return written(err)
	}
	l.dstIs = inodeOf(&is)
	if st.Mount == c.mount {
		if l.todo, err = vfs.Entries(src); err != nil {
			return written(err)
		}
	}
	if i := len(c.trail) - 1 - keepOpen; i >= 0 {
		c.trail[i].close()
	}
	return nil
}

// ascend ends the copy of a directory and returns to its parent. It sets the attributes last, because the
// copy changes its times and may need a permission that the final mode does not give.
func (c *copier) ascend() error {
	last := len(c.trail) - 1
	l := c.trail[last]
	if last > 0 && c.trail[last-1].src < 0 {
		if err := c.trail[last-1].reopen(l); err != nil {
			return err
		}
	}
	if err := c.finish(l.src, l.dst, &l.stat); err != nil {
		return written(err)
	}
	l.close()
	c.trail = c.trail[:last]
	return nil
}

// reopen opens the directory of the level l again, which was closed to save descriptors. It is reached as the
// parent, "..", of the level child.
func (l *level) reopen(child *level) error {
	src, err := openRead(child.src, "..", unix.O_DIRECTORY)
	if err != nil {
		return written(err)
	}
	l.src = src
	if st, err := vfs.Lstat(src, ""); err != nil || inodeOf(&st) != inodeOf(&l.stat) {
		return &errs.Error{Kind: errs.ErrBusy, Err: errors.New("the directory was moved during the copy")}
	}
	dst, err := openRead(child.dst, "..", unix.O_DIRECTORY)
	if err != nil {
		return written(err)
	}
	l.dst = dst
	if st, err := vfs.Lstat(dst, ""); err != nil || inodeOf(&st) != l.dstIs {
		return &errs.Error{Kind: errs.ErrNotFound, Err: errors.New("the copy was removed while it was made")}
	}
	return nil
}

func (l *level) close() {
	for _, fd := range []*int{&l.src, &l.dst} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

func (c *copier) close() {
	for _, l := range c.trail {
		l.close()
	}
	if c.links >= 0 {
		unix.Close(c.links)
	}
}

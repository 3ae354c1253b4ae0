package plain

import (
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// keepOpen is how many nested directories are held open at once, on either
// side. Deeper ones are closed on the way down and found again, through "..",
// on the way up, so that neither PATH_MAX nor the limit on descriptors bounds
// how deep a tree may be.
const keepOpen = 64

// A level is a directory being copied.
type level struct {
	name     string
	src, dst int // descriptors; closed ones are -1
	stat     vfs.Stat
	dstIs    inode
	todo     []vfs.Entry
}

// descend makes a directory the one being copied. It owns the descriptors.
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

// ascend ends the copy of a directory: its own attributes come last, because
// filling it changed its times and might have needed a right it takes away.
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

// reopen finds a directory again from one in it.
func (l *level) reopen(child *level) error {
	src, err := openRead(child.src, "..", unix.O_DIRECTORY)
	if err != nil {
		return written(err)
	}
	l.src = src
	if st, err := vfs.Lstat(src, ""); err != nil || inodeOf(&st) != inodeOf(&l.stat) {
		return &reason{errs.ErrBusy, "it was moved while it was copied"}
	}
	dst, err := openRead(child.dst, "..", unix.O_DIRECTORY)
	if err != nil {
		return written(err)
	}
	l.dst = dst
	if st, err := vfs.Lstat(dst, ""); err != nil || inodeOf(&st) != l.dstIs {
		return &reason{errs.ErrNotFound, "the copy was removed while it was made"}
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

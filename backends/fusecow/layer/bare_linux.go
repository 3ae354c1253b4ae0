package layer

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// Bare reports whether the filesystem is the tree below alone: nothing lies above it, and
// nobody writes to it.
func (f *FS) Bare() bool { return f.readOnly && len(f.layers) == 0 }

// readBare is ReadDir of the tree below alone. An offset is what the filesystem there
// calls a place, which is the same for who opens the directory anew: so there is nothing to
// be kept between two calls, and no request that a list begins or ends.
func (f *FS) readBare(n *node, offset int64, add func(d Dir, e kernel.Entry, next uint64) (room bool, err error)) error {
	d, err := f.directory(n.from)
	if err != nil {
		return err
	}
	defer f.fds.put(d)
	own, err := openList(d)
	if err != nil {
		return err
	}
	defer own.Close()
	return kernel.EntriesFrom(int(own.Fd()), offset, func(e kernel.Entry, next int64) (bool, error) {
		if e.Name == "." || e.Name == ".." {
			e.Ino = n.ino
		}
		room, err := add(Dir{f, n}, e, uint64(next))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return room, err
	})
}

// A Content is a descriptor by which the content of a file can be read, for as long as it
// is not closed. It is to be had where nobody writes to the filesystem.
type Content struct {
	FD    int
	f     *FS
	n     *node
	close func()
}

// Content opens that of a node. An error is also that it lies in several places.
func (f *FS) Content(id uint64) (*Content, error) {
	n, err := f.node(id)
	if err != nil {
		return nil, err
	}
	n.lock().RLock()
	defer n.lock().RUnlock()
	c := &Content{f: f, n: n}
	switch {
	case n.place == nowhere || f.partsOf(n) != nil:
		return nil, errParts
	case n.place == below: // one of its own, so that it is let go of when this is closed
		if c.FD, err = f.openBelow(n.from, unix.O_RDONLY); err != nil {
			return nil, err
		}
		c.close = func() { unix.Close(c.FD) }
	default:
		d, err := f.source(n)
		if err != nil {
			return nil, err
		}
		c.FD, c.close = d.n, func() { f.fds.put(d) }
	}
	if !c.Of(id) {
		c.Close()
		return nil, errParts
	}
	return c, nil
}

// Of reports whether it is the content that the kernel means by a number: another file may
// have got that, the tree below have another one by its name, or this one be of another length than
// the kernel was told.
func (c *Content) Of(id uint64) bool {
	n, err := c.f.node(id)
	if err != nil || n != c.n {
		return false
	}
	st, err := kernel.Lstat(c.FD, "")
	return err == nil && st.Size == n.size && st.Nlink > 0
}

// Close lets go of it.
func (c *Content) Close() { c.close() }

package layer

import (
	"errors"
	"io/fs"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// LowerOnly reports whether f shows the lower directory tree alone: read-only, without any layer above it.
func (f *FS) LowerOnly() bool { return f.readOnly && len(f.layers) == 0 }

// readDirLowerOnly is [FS.ReadDir] for a filesystem without layers. It uses the offsets of the lower, which
// stay valid when the directory is opened again: so the kernel need not request to open or close it.
func (f *FS) readDirLowerOnly(n *inode, offset int64, add func(d Dir, e vfs.Entry, next uint64) (room bool, err error)) error {
	d, err := f.lower.DirFD(n.lower)
	if err != nil {
		return err
	}
	defer f.fds.Put(d)
	own, err := lower.OpenForListing(d)
	if err != nil {
		return err
	}
	defer own.Close()
	return vfs.EntriesFrom(int(own.Fd()), offset, func(e vfs.Entry, next int64) (bool, error) {
		if f.lower.Hides(n.lower, e.Name) {
			return true, nil
		}
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

// A Content is an open content file of a read-only filesystem, which package mount lets the kernel read
// directly. FD stays valid until Close.
type Content struct {
	FD    int
	f     *FS
	n     *inode
	close func()
}

// Content opens the content file of the inode id; a sparse upper, with several files, is an error.
func (f *FS) Content(id uint64) (*Content, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return nil, err
	}
	n.lock().RLock()
	defer n.lock().RUnlock()
	c := &Content{f: f, n: n}
	switch {
	case n.layer == logfile.NoContent || f.sparseOf(n) != nil:
		return nil, errNotOneFile
	case n.layer == logfile.InLower: // a descriptor of its own, so that Close releases the file
		if c.FD, err = f.lower.Open(n.lower, unix.O_RDONLY); err != nil {
			return nil, err
		}
		c.close = func() { unix.Close(c.FD) }
	default:
		d, err := f.openContent(n)
		if err != nil {
			return nil, err
		}
		c.FD, c.close = d.Num, func() { f.fds.Put(d) }
	}
	if !c.Current(id) {
		c.Close()
		return nil, errNotOneFile
	}
	return c, nil
}

// Current reports whether c is still the content of inode id. It returns false if the number was reused, the
// lower has another file under that name, or the size differs from the one that the kernel has cached.
func (c *Content) Current(id uint64) bool {
	n, err := c.f.inodeByID(id)
	if err != nil || n != c.n {
		return false
	}
	st, err := vfs.Lstat(c.FD, "")
	return err == nil && st.Size == n.size && st.Nlink > 0
}

// Close releases the descriptor of the content file, which must not be used afterwards.
func (c *Content) Close() { c.close() }

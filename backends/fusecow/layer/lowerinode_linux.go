package layer

import (
	"errors"
	"io/fs"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// lowerGone reports whether err means that the lower directory of a dirty dir no longer exists. dir then has
// only the names that the layers record. Detach needs to see the error, so it gets false.
func (f *FS) lowerGone(dir *inode, err error) bool {
	return (errors.Is(err, unix.ESTALE) || errors.Is(err, fs.ErrNotExist)) && dir.changed && !f.detaching
}

// loadLower loads the attributes of a clean inode from the lower before it becomes dirty.
func (f *FS) loadLower(n *inode) error {
	if n.changed || n.lower == nil {
		return nil
	}
	return f.lower.With(n.lower, func(dirfd int, name string) (err error) {
		st, err := vfs.Lstat(dirfd, name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && f.lower.IdentityOf(&st) != n.lower.Identity {
			return f.lower.Stale(n.lower)
		}
		if err != nil {
			return err
		}
		if n.xattrs, err = vfs.Xattrs(dirfd, name); err != nil {
			return err
		}
		if st.IsSymlink() {
			n.target, err = readlink(dirfd, name)
		}
		return err
	})
}

func readlink(dirfd int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dirfd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// LateReads returns the paths of the lower files that had changed since Options.Since when they were read.
func (f *FS) LateReads() []string { return f.lower.LateReads() }

package promote

import (
	"errors"
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A dirs opens the directories of a tree and caches the last one: paths come in order, so the
// next one is mostly in the same directory.
type dirs struct {
	root *os.File
	path string
	last *os.File
	same *os.File // last, once it is verified as a changedDir
}

// dir opens a directory below the root with O_PATH, following no symbolic link. It stays
// open until the next call.
func (d *dirs) dir(path string) (*os.File, error) {
	if path == "." {
		return d.root, nil
	}
	if d.last != nil && d.path == path {
		return d.last, nil
	}
	d.close()
	f, err := openBeneath(d.root, path, vfs.OPath|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	d.path, d.last = path, f
	return f, nil
}

// openBeneath opens a path below a root; the caller closes it. A path that a link leads out of
// the root (EXDEV, see openat2(2)) gives ELOOP.
func openBeneath(root *os.File, path string, flags int) (*os.File, error) {
	f, err := vfs.OpenBeneath(int(root.Fd()), path, flags, 0)
	if errors.Is(err, unix.EXDEV) {
		err = &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
	}
	return f, err
}

// at returns the parent directory of path, open as dir returns it, and the name in it. The
// root itself has the name ".".
func (d *dirs) at(path string) (*os.File, string, error) {
	dir, name := split(path)
	f, err := d.dir(dir)
	return f, name, err
}

// stat returns the stat of a path. missing(err) reports whether it does not exist.
func (d *dirs) stat(path string) (vfs.Stat, error) {
	dir, name, err := d.at(path)
	if err != nil {
		return vfs.Stat{}, err
	}
	return vfs.Lstat(int(dir.Fd()), name)
}

func (d *dirs) close() {
	if d.last != nil {
		d.last.Close()
		d.last, d.same = nil, nil
	}
}

// openNode opens a node of any type with O_PATH, which has no effect on it; the caller closes
// it.
func openNode(dir *os.File, name string) (*os.File, error) {
	return vfs.OpenAt(int(dir.Fd()), name, vfs.OPath|unix.O_NOFOLLOW, 0)
}

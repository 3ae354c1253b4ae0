package promote

import (
	"errors"
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// dirs opens the directories of a tree, one at a time: paths come in order, so
// the last one opened is mostly the next one wanted.
type dirs struct {
	root *os.File
	path string
	last *os.File
	same *os.File // last, if it is known to be the directory of a place
}

// dir opens a directory beneath the root with O_PATH, following no symbolic
// link. It stays open until the next call.
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

// openBeneath opens a path beneath a root. One that a link would lead out of it
// (EXDEV, see openat2(2)) leads nowhere.
func openBeneath(root *os.File, path string, flags int) (*os.File, error) {
	f, err := vfs.OpenBeneath(int(root.Fd()), path, flags, 0)
	if errors.Is(err, unix.EXDEV) {
		err = &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
	}
	return f, err
}

// at opens the directory that holds path. The root is its own "." there.
func (d *dirs) at(path string) (*os.File, string, error) {
	dir, name := split(path)
	f, err := d.dir(dir)
	return f, name, err
}

// stat describes a path; missing(err) where there is none.
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

// openNode opens a node itself, of whatever type, without any effect on it.
func openNode(dir *os.File, name string) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(dir.Fd()), name, vfs.OPath|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if err != unix.EINTR {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

package nodes

import (
	"errors"
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Dirs opens directories of a tree and caches the last one: a promotion's paths are sorted, so the next one
// is mostly in the same directory. Set Root before the first call.
type Dirs struct {
	Root *os.File
	path string
	last *os.File
	same *os.File // last, once DirWith has verified its inode
}

// Dir opens a directory below the root with O_PATH, following no symbolic link. It stays open until the next
// call.
func (d *Dirs) Dir(path string) (*os.File, error) {
	if path == "." {
		return d.Root, nil
	}
	if d.last != nil && d.path == path {
		return d.last, nil
	}
	d.Close()
	f, err := openBeneath(d.Root, path, vfs.OPath|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	d.path, d.last = path, f
	return f, nil
}

// DirWith returns the directory at a path as Dir does, but nil if it has another inode than ino or does not
// exist. All calls for one path must give the same ino.
func (d *Dirs) DirWith(path string, ino uint64) (*os.File, error) {
	dir, err := d.Dir(path)
	if Missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if dir == d.same {
		return dir, nil // verified before and still open
	}
	st, err := vfs.Lstat(int(dir.Fd()), "")
	if err != nil || st.Ino != ino {
		return nil, err
	}
	if dir == d.last {
		d.same = dir
	}
	return dir, nil
}

// openBeneath opens a path below a root; the caller closes it. If a symbolic link leads out of the root
// (EXDEV, see openat2(2)), the error is ELOOP.
func openBeneath(root *os.File, path string, flags int) (*os.File, error) {
	f, err := vfs.OpenBeneath(int(root.Fd()), path, flags, 0)
	if errors.Is(err, unix.EXDEV) {
		err = &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
	}
	return f, err
}

// At returns the open parent directory of path, which Dirs owns and which is valid until the next call, and
// the name in it. For the root itself the name is ".".
func (d *Dirs) At(path string) (*os.File, string, error) {
	dir, name := diff.Split(path)
	f, err := d.Dir(dir)
	return f, name, err
}

// Stat returns the inode metadata of a path below the root, not following a symbolic link. Missing(err)
// reports whether the path does not exist.
func (d *Dirs) Stat(path string) (vfs.Stat, error) {
	dir, name, err := d.At(path)
	if err != nil {
		return vfs.Stat{}, err
	}
	return vfs.Lstat(int(dir.Fd()), name)
}

// Close closes the directory that is held open for the next call, not the root, which the caller owns. The
// Dirs can still be used.
func (d *Dirs) Close() {
	if d.last != nil {
		d.last.Close()
		d.last, d.same = nil, nil
	}
}

package files

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// partial begins the name of a file that a client is writing. The file lies in the same directory as the one
// that it replaces, and is renamed to that when it has its whole content.
const partial = ".snapfs-partial-"

// Write replaces the file at path inside the root directory atomically, or makes it. See [Tree].
func (r *Root) Write(path string, from io.Reader, o WriteOptions) (Info, error) {
	const op = "writing"
	if err := check(op, path); err != nil {
		return Info{}, err
	}
	if strings.HasSuffix(path, "/") {
		return Info{}, errs.New(op, path, errs.ErrInvalid, "the path of a file ends in no slash")
	}
	if parent, _ := split(path); o.Parents {
		if err := r.makeDirs(parent); err != nil {
			return Info{}, failure(op, path, err)
		}
	}
	e, err := r.target(op, path)
	if err != nil {
		return Info{}, err
	}
	defer e.close()
	old, err := e.stat()
	exists := err == nil
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return Info{}, failure(op, path, err)
	case exists && o.New:
		return Info{}, failure(op, path, unix.EEXIST)
	case exists && old.Mode&unix.S_IFMT != unix.S_IFREG:
		return Info{}, errs.New(op, path, errs.ErrInvalid, "it is no regular file but a "+info("", &old).Type)
	}
	if !exists {
		old.Mode = 0o644
		if o.Mode != 0 {
			old.Mode = o.Mode
		}
	}
	i, err := e.replace(from, old, exists, o.New)
	return i, failure(op, path, err)
}

// replace writes a new file in the entry's directory and then renames it to the entry. The new file gets the
// mode of old, and if exists is set its owner. With onlyNew an existing file is an error.
func (e entry) replace(from io.Reader, old unix.Stat_t, exists, onlyNew bool) (_ Info, err error) {
	part := entry{e.dir, partial + rand.Text()}
	fd, err := unix.Openat(e.fd(), part.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return Info{}, err
	}
	f := os.NewFile(uintptr(fd), part.name)
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(e.fd(), part.name, 0) // it may have its name by now
		}
	}()
	_, err = io.Copy(f, from)
	if err == nil && exists {
		_ = f.Chown(int(old.Uid), int(old.Gid)) // see Tree.Write
	}
	if err == nil {
		err = unix.Fchmod(fd, old.Mode&0o7777)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return Info{}, err
	}
	flags := uint(0)
	if onlyNew {
		flags = unix.RENAME_NOREPLACE
	}
	if err = unix.Renameat2(e.fd(), part.name, e.fd(), e.name, flags); err != nil {
		return Info{}, err
	}
	return e.info()
}

// makeDirs makes the directory at path inside the root directory, with its missing parents; one that exists
// is no error.
func (r *Root) makeDirs(path string) error {
	elements := strings.Split(path, "/")
	for n := range elements {
		at := strings.Join(elements[:n+1], "/")
		if elements[n] == "" || elements[n] == "." || elements[n] == ".." {
			continue
		}
		if f, err := r.open(at, unix.O_PATH|unix.O_DIRECTORY); err == nil {
			f.Close()
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		e, err := r.target("making a directory", at)
		if err != nil {
			return err
		}
		err = unix.Mkdirat(e.fd(), e.name, 0o755)
		e.close()
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// MakeDir makes a directory at path inside the root directory, with parents also its missing parents. See
// [Tree].
func (r *Root) MakeDir(path string, parents bool) (Info, error) {
	const op = "making a directory"
	if err := check(op, path); err != nil {
		return Info{}, err
	}
	if parents {
		if err := r.makeDirs(path); err != nil {
			return Info{}, failure(op, path, err)
		}
		i, err := r.Stat(path, true)
		if err == nil && i.Type != Directory {
			err = unix.EEXIST
		}
		return i, failure(op, path, err)
	}
	e, err := r.entry(op, path)
	if err != nil {
		return Info{}, err
	}
	defer e.close()
	if err := unix.Mkdirat(e.fd(), e.name, 0o755); err != nil {
		return Info{}, failure(op, path, err)
	}
	i, err := e.info()
	return i, failure(op, path, err)
}

// Rename moves the entry from to the path to, both inside the root directory. See [Tree].
func (r *Root) Rename(from, to string) error {
	const op = "renaming"
	a, err := r.entry(op, from)
	if err != nil {
		return err
	}
	defer a.close()
	b, err := r.entry(op, to)
	if err != nil {
		return err
	}
	defer b.close()
	return failure(op, from, unix.Renameat(a.fd(), a.name, b.fd(), b.name))
}

// Remove removes the file or empty directory at path, with all also a directory with its content. See [Tree].
func (r *Root) Remove(path string, all bool) error {
	const op = "removing"
	e, err := r.entry(op, path)
	if err != nil {
		return err
	}
	defer e.close()
	st, err := e.stat()
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		err = unix.Unlinkat(e.fd(), e.name, 0)
	case !all:
		err = unix.Unlinkat(e.fd(), e.name, unix.AT_REMOVEDIR)
	default:
		err = e.removeAll()
	}
	return failure(op, path, err)
}

// removeAll removes the directory that the entry names, with everything in it, through an os.Root, so that no
// link leads out of it.
func (e entry) removeAll() error {
	dir, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(e.fd()))
	if err != nil {
		return err
	}
	return errors.Join(dir.RemoveAll(e.name), dir.Close())
}

package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Dir names a directory by an open directory and a path inside it. Files are always opened relative to the
// open directory, so that no symbolic link leads outside.
type Dir struct {
	// Root is open for reading.
	Root *os.File
	// Path is relative to Root, with slashes.
	Path string
}

// In returns the Dir that names the directory name inside d, without opening it.
func (d Dir) In(name string) Dir { return Dir{d.Root, path.Join(d.Path, name)} }

// Open opens the regular file name in d for reading; the caller closes it. Errors: fs.ErrNotExist, also for a
// file of another type or behind a symbolic link.
func (d Dir) Open(name string) (*os.File, error) {
	f, err := d.open(name, os.O_RDONLY|syscall.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist})
	}
	return f, nil
}

func (d Dir) open(name string, flags int) (*os.File, error) {
	f, err := vfs.OpenBeneath(int(d.Root.Fd()), path.Join(d.Path, name), flags|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.ENXIO) {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f, err
}

// Read returns the content of the regular file name in d, which may have at most limit bytes. Errors: those
// of Open; errTooLong for a longer file.
func (d Dir) Read(name string, limit int64) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: %w of %d bytes", name, errTooLong, limit)
	}
	return data, err
}

var errTooLong = errors.New("longer than the limit")

// Stat returns the attributes of the file name in d. It does not follow a symbolic link.
func (d Dir) Stat(name string) (vfs.Stat, error) {
	p := path.Join(d.Path, name)
	in, err := Dir{d.Root, path.Dir(p)}.open("", os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return vfs.Stat{}, err
	}
	defer in.Close()
	return vfs.Lstat(int(in.Fd()), path.Base(p))
}

// IsDir reports whether the entry name of the directory d is itself a directory, and no symbolic link to one.
func (d Dir) IsDir(name string) bool {
	st, err := d.Stat(name)
	return err == nil && st.IsDir()
}

// List returns the entries of the directory name in d, sorted by name. A missing directory has no entries and
// is no error.
func (d Dir) List(name string) ([]vfs.Entry, error) {
	f, err := d.open(name, os.O_RDONLY|syscall.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := vfs.Entries(int(f.Fd()))
	vfs.SortEntries(list)
	return list, err
}

//go:build linux

package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// The files of removed records are used again, for the reason that layers are
// (see spare.go): they lie in old/, and Sweep leaves maxSpare of them there.

// writeRecord makes a record at path, which must not be there yet: the whole of
// it, where an old file is to be had, and otherwise as writeNew does.
func (b *backend) writeRecord(path string, text []byte) error {
	if own := b.takeOld(); own != "" {
		err := writeOver(own, text)
		if err == nil {
			err = vfs.RenameNew(own, path)
		}
		if err == nil {
			return nil
		}
		_ = os.Remove(own) // or Sweep does
		if errors.Is(err, fs.ErrExist) {
			return &fs.PathError{Op: "create", Path: path, Err: err}
		}
	}
	return writeNew(path, text)
}

// takeOld gives an old file a name that nobody else uses, or answers "".
func (b *backend) takeOld() string {
	dir, err := os.Open(b.dir + "/old")
	if err != nil {
		return ""
	}
	names, _ := dir.Readdirnames(maxSpare)
	_ = dir.Close()
	for _, name := range names {
		own := filepath.Join(b.dir, "tmp", fresh("record"))
		if vfs.RenameNew(filepath.Join(b.dir, "old", name), own) == nil {
			return own // another process was not quicker
		}
	}
	return ""
}

// writeOver replaces the content of a file that nobody else has a name for.
// It is never empty in between: ext4 would write it to the disk at once.
func writeOver(path string, text []byte) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st, err := vfs.Lstat(fd, "")
	if err != nil {
		return err
	}
	if !st.IsRegular() || st.Nlink != 1 {
		return unix.EINVAL
	}
	n, err := unix.Write(fd, text)
	if err == nil && n < len(text) {
		err = unix.ENOSPC
	}
	if err != nil || st.Size <= int64(n) {
		return err
	}
	return unix.Ftruncate(fd, int64(n))
}

// retire takes a record's name away, at once and for good.
func (b *backend) retire(path string) error {
	err := vfs.RenameNew(path, filepath.Join(b.dir, "old", fresh("")))
	if errors.Is(err, fs.ErrNotExist) { // the record, or the directory for it
		err = unix.Unlink(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// clearOld leaves as many old files as are worth keeping.
func (b *backend) clearOld() error {
	dir := filepath.Join(b.dir, "old")
	old, err := names(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for len(old) > maxSpare {
		b.discard(filepath.Join(dir, old[0]))
		old = old[1:]
	}
	return err
}

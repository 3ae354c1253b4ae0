//go:build linux

package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// The files of removed records are reused, for the same reason as layers (see spare.go): they lie
// in old/, and Sweep leaves maxSpare of them there.

// writeRecord creates the record of a snapshot or fork, the file path with the content text. If the file of a
// removed record can be reused, it fills and renames that, so that the record is never incomplete; otherwise
// it calls writeNew.
func (s *Store) writeRecord(path string, text []byte) error {
	if own := s.takeOld(); own != "" {
		err := writeOver(own, text)
		if err == nil {
			err = vfs.RenameNew(own, path)
		}
		if err == nil {
			return nil
		}
		_ = os.Remove(own) // otherwise Sweep removes it
		if errors.Is(err, fs.ErrExist) {
			return &fs.PathError{Op: "create", Path: path, Err: err}
		}
	}
	return writeNew(path, text)
}

// takeOld takes the file of a removed record, to be reused for a new one: it moves a file from old/ to a
// unique name in tmp/ and returns that path, or "" if there is none.
func (s *Store) takeOld() string {
	files, _ := os.ReadDir(s.Dir + "/old")
	for _, f := range files {
		own := filepath.Join(s.Dir, "tmp", UniqueName("record"))
		if vfs.RenameNew(filepath.Join(s.Dir, "old", f.Name()), own) == nil {
			return own // no other process took this one first
		}
	}
	return ""
}

// writeOver replaces the content of the file path, which only this process can name, by text. It does not
// truncate the file first: ext4 writes a truncated and rewritten file to the disk at once.
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

// Retire removes the record of a snapshot or fork: it moves the file path to old/ for reuse, or deletes it. A
// record that does not exist is no error.
func (s *Store) Retire(path string) error {
	err := vfs.RenameNew(path, filepath.Join(s.Dir, "old", UniqueName("")))
	if errors.Is(err, fs.ErrNotExist) { // either the record or the directory old
		err = unix.Unlink(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// clearOld moves all but maxSpare (32) files of removed records, which wait in old/ for reuse, into the
// trash.
func (s *Store) clearOld() error {
	dir := filepath.Join(s.Dir, "old")
	old, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for len(old) > maxSpare {
		s.ToTrash(filepath.Join(dir, old[0].Name()))
		old = old[1:]
	}
	return err
}

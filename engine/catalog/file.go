package catalog

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A durability is how far a function has brought the new content of a file when it returns.
type durability int

// The values of durability, each of which includes those before.
const (
	// visible means that other processes read the new content. A power loss may leave a part of it.
	visible durability = iota
	// ordered means that a power loss leaves the old content or all of the new one.
	ordered
	// durable means that the new content is on stable storage.
	durable
)

// ReplaceFile writes data to the file path such that a reader finds the old or the new content, also after a
// crash of this process. With stable this holds after a power loss too, and the new content is on stable
// storage when it returns. Any number of processes may call it at once for one file: the content of the last one
// stays. After an error the old content stays.
func ReplaceFile(path string, data []byte, stable bool) error {
	to := visible
	if stable {
		to = durable
	}
	lock, err := lockReplacing(path)
	if err != nil {
		return fail("writing", path, err)
	}
	defer vfs.Unlock(lock)
	return replaceFile(path, data, to)
}

// ReplaceQuickly replaces the file path by one with the content data, as [ReplaceFile] does without stable, but
// without starting a write to the disk: after a power loss within the next seconds the file may be empty. The caller
// must hold a lock that excludes other writers of the file, such as the lock of a sandbox. After another error the
// file has its old or its new content.
//
// ReplaceQuickly exchanges the names of the old and the new file. A rename(2) over the old file would make ext4 begin
// to write the new one at once (mount option auto_da_alloc, ext4(5)), and the caller would wait behind other writes.
func ReplaceQuickly(path string, data []byte) error {
	tmp := newName(path)
	err := write(tmp, data, visible)
	if err == nil {
		if err = vfs.Replace(tmp, path); errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(tmp, path) // the first content
		}
	}
	if rerr := os.Remove(tmp); err == nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = rerr
	}
	if err != nil {
		return fail("writing", path, err)
	}
	return nil
}

// RemoveFileIf removes the file path if its content is data, and no [ReplaceFile] has replaced that. A file that does
// not exist is an error that matches fs.ErrNotExist.
func RemoveFileIf(path string, data []byte) error {
	lock, err := lockReplacing(path)
	if err != nil {
		return fail("removing", path, err)
	}
	defer vfs.Unlock(lock)
	now, err := os.ReadFile(path)
	if err == nil && bytes.Equal(now, data) {
		err = os.Remove(path)
	}
	_ = os.Remove(newName(path)) // which holds nothing
	return err
}

// newName returns the path at which the new content of the file path is written before it replaces the file.
func newName(path string) string { return path + ".new" }

// lockReplacing locks the new content of the file path, and creates it empty. The lock ends with [vfs.Unlock], after the
// caller has given the new content its name or removed it; a waiting process then creates another one.
func lockReplacing(path string) (*os.File, error) {
	for {
		f, err := vfs.OpenAt(unix.AT_FDCWD, newName(path), unix.O_WRONLY|unix.O_CREAT, 0o600)
		if err != nil {
			return nil, err
		}
		if err = vfs.Flock(f, unix.LOCK_EX); err == nil && sameFile(f, newName(path)) {
			return f, nil
		}
		if vfs.Unlock(f); err != nil {
			return nil, err
		}
	}
}

// replaceFile replaces a file as [ReplaceFile] does, and brings its new content as far as to says. Only one process may
// replace the file at once, such as the one with the sandbox's lock.
func replaceFile(path string, data []byte, to durability) error {
	tmp := newName(path)
	err := write(tmp, data, to)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return fail("writing", path, err)
	}
	if to == durable {
		return syncDir(filepath.Dir(path))
	}
	return nil
}

// Overwrite makes data the content of the file at path, which no other process reads meanwhile, and makes the file if it
// does not exist. Unlike os.WriteFile it does not empty the file first, after which ext4 would begin to write it to the
// disk. The content reaches the disk at some time later.
func Overwrite(path string, data []byte) error { return write(path, data, visible) }

// write writes the content of a new file for the catalogue that no other process reads yet. With ordered or durable the
// content reaches the disk before any name that the file gets afterwards, and both are on stable storage once
// the caller has synced the directory of that name: one commit of the file system's journal, not two.
func write(path string, data []byte, to durability) error {
	// Not O_TRUNC: ext4 syncs a truncated file when it is closed (mount option
	// auto_da_alloc, ext4(5)).
	f, err := vfs.OpenAt(unix.AT_FDCWD, path, unix.O_WRONLY|unix.O_CREAT, 0o600)
	if err != nil {
		return fail("writing", path, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil && to >= ordered {
		err = vfs.SyncData(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fail("writing", path, err)
	}
	return nil
}

func syncDir(path string) error {
	if err := vfs.SyncDir(path); err != nil {
		return fail("syncing", path, err)
	}
	return nil
}

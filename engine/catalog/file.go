package catalog

import (
	"errors"
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
// storage when it returns. Two processes must not replace the same file at once. After an error the old
// content stays.
func ReplaceFile(path string, data []byte, stable bool) error {
	if stable {
		return replaceFile(path, data, durable)
	}
	return replaceFile(path, data, visible)
}

// replaceFile replaces a file as [ReplaceFile] does, and brings its new content as far as to says.
func replaceFile(path string, data []byte, to durability) error {
	tmp := path + ".new"
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

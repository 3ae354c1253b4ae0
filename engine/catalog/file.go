package catalog

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A durability says what of a replaced file a power loss leaves.
type durability int

const (
	// passing promises nothing: the file may be empty.
	passing durability = iota
	// ordered leaves the old or the new content. It costs half of durable.
	ordered
	// durable leaves the new content, which is on stable storage before the call returns.
	durable
)

// durabilityOf returns durable or passing.
func durabilityOf(lasting bool) durability {
	if lasting {
		return durable
	}
	return passing
}

// ReplaceFile writes data to the file path such that a reader finds the old or the new content, also after a
// crash of this process. With lasting this holds after a power loss too, and the new content is on stable
// storage when it returns. Two processes must not replace the same file at once. After an error the old
// content stays.
func ReplaceFile(path string, data []byte, lasting bool) error {
	return replaceFile(path, data, durabilityOf(lasting))
}

func replaceFile(path string, data []byte, d durability) error {
	tmp := path + ".new"
	err := write(tmp, data, d != passing)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return fail("writing", path, err)
	}
	if d == durable {
		return syncDir(filepath.Dir(path))
	}
	return nil
}

// write writes the content of a new file for the catalogue that no other process reads yet. With lasting the
// content reaches the disk before any name that the file gets afterwards, and both are on stable storage once
// the caller has synced the directory of that name: one commit of the file system's journal, not two.
func write(path string, data []byte, lasting bool) error {
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
	if err == nil && lasting {
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

//go:build linux

package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// EmptyTrash deletes the content of the trash.
func (s *Store) EmptyTrash(ctx context.Context) error {
	path := filepath.Join(s.Dir, "trash")
	trash, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer trash.Close()
	d := deleter{ctx: ctx, storage: s.Storage, trash: int(trash.Fd()), since: time.Now()}
	for {
		entries, err := vfs.Entries(d.trash)
		if err != nil || len(entries) == 0 {
			return err
		}
		before := d.done
		for _, e := range entries {
			if err := d.remove(d.trash, e.Name, 0); err != nil {
				return err
			}
		}
		if d.done == before {
			return nil // another sweep is deleting them
		}
	}
}

const (
	batch      = 128 // entries deleted before a rest of the same duration
	deepEnough = 200 // levels; deeper directories are moved to the top first
)

type deleter struct {
	ctx     context.Context
	storage QuotaStorage
	trash   int
	tries   int
	done    int
	since   time.Time
}

// remove deletes name in dir, with all its content. It follows no symbolic link and enters no
// mount. A missing entry is no error, because another sweep may have deleted it.
func (d *deleter) remove(dir int, name string, depth int) error {
	if err := d.pace(); err != nil {
		return err
	}
	err := unix.Unlinkat(dir, name, 0)
	if err != unix.EISDIR && err != unix.EPERM && err != unix.EACCES {
		return d.gone("unlink", name, err)
	}
	if depth == 1 && d.storage != nil {
		if was, err := d.storage.Destroy(dir, name); was {
			return d.gone("destroy", name, err)
		}
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if err != unix.ENOTEMPTY && err != unix.EEXIST {
		return d.gone("rmdir", name, err)
	}
	if depth >= deepEnough {
		return d.gone("rename", name, unix.Renameat(dir, name, d.trash, UniqueName("")))
	}
	if err := d.clear(dir, name, depth); err != nil {
		return err
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if err == unix.ENOTEMPTY {
		return nil // another sweep has just moved an entry here
	}
	return d.gone("rmdir", name, err)
}

func (d *deleter) gone(op, name string, err error) error {
	if err == nil {
		d.done++
	}
	if err == nil || err == unix.ENOENT {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// clear deletes the content of a directory.
func (d *deleter) clear(parent int, name string, depth int) error {
	dir, err := openOwn(parent, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if st, err := vfs.Lstat(int(dir.Fd()), ""); err != nil || st.MountRoot {
		return errors.Join(err, &fs.PathError{Op: "rmdir", Path: name, Err: unix.EBUSY})
	}
	entries, err := vfs.Entries(int(dir.Fd()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted while it was open
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := d.remove(int(dir.Fd()), e.Name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// openOwn opens a directory to delete its content. It first gives the owner all permissions,
// because overlayfs itself makes a directory of mode 000.
func openOwn(parent int, name string) (*os.File, error) {
	node, err := unix.Openat(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(node), name)
	defer f.Close()
	st, err := vfs.Lstat(node, "")
	if err != nil {
		return nil, err
	}
	if st.Mode&0o700 != 0o700 {
		if err := unix.Chmod(vfs.FDPath(f), 0o700); err != nil {
			return nil, &fs.PathError{Op: "chmod", Path: name, Err: err}
		}
	}
	return vfs.OpenDir(node, "")
}

// pace rests after each batch for as long as the batch took.
func (d *deleter) pace() error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	if d.tries++; d.tries%batch != 0 {
		return nil
	}
	select {
	case <-d.ctx.Done():
		return d.ctx.Err()
	case <-time.After(time.Since(d.since)):
	}
	d.since = time.Now()
	return nil
}

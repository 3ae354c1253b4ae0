package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Discard frees the sandbox's name and moves its directory to the trash, in constant time and atomically.
// From there [Catalog.Trash] lists it until its trees are removed too. The sandbox's lock passes to the
// result; after an error it is released.
func (h *Locked) Discard() (Discarded, error) {
	d := Discarded{Record: h.Record, Path: filepath.Join(h.c.dir, trash, h.Name+"."+h.ID), c: h.c, lock: h.dir}
	err := h.c.plan.Point("move it to the trash")
	if err == nil {
		err = os.Rename(h.c.Path(h.Name), d.Path)
	}
	if err != nil {
		h.Release()
		return d, fail("removing", h.Name, err)
	}
	return d, nil
}

// A Discarded is a removed sandbox in the catalogue's trash, with its lock: it has no name any more, but its
// trees may still exist.
type Discarded struct {
	*Record
	// Path is the sandbox's directory in the trash.
	Path string
	c    *Catalog
	lock *os.File
}

// Trash locks and returns the removed sandboxes whose trees may still exist, except those that another
// process has locked. The caller removes their trees and releases the locks. A sandbox whose record cannot be
// read is reported as an error and left as it is.
func (c *Catalog) Trash() ([]Discarded, []error) {
	dir := filepath.Join(c.dir, trash)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, []error{fail("listing", dir, err)}
	}
	var found []Discarded
	var failures []error
	for _, e := range entries {
		d := Discarded{Path: filepath.Join(dir, e.Name()), c: c}
		if d.lock = tryLock(d.Path); d.lock == nil {
			continue
		}
		d.Record, err = c.read(filepath.Join(d.Path, record), e.Name())
		if r, ok := readCopy(d.Path); errors.Is(err, errs.ErrCorrupt) && ok {
			d.Record, err = r, nil
		}
		if err == nil {
			found = append(found, d)
			continue
		}
		if errors.Is(err, errs.ErrNotFound) { // the trees are gone: only the directory is left
			err = removeAll(d.Path)
		}
		if err != nil {
			failures = append(failures, err)
		}
		d.Release()
	}
	return found, failures
}

// tryLock locks the sandbox directory at path without waiting. It returns the open file that holds the lock,
// which the caller closes, or nil if another process has the lock or the directory is gone.
func tryLock(path string) *os.File {
	dir, err := vfs.OpenAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	if syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !sameFile(dir, path) {
		dir.Close()
		return nil
	}
	return dir
}

// Release releases the lock of the discarded sandbox, whose data the caller no longer removes. It may be
// called twice.
func (d Discarded) Release() { d.lock.Close() }

// Forget removes the directory of a discarded sandbox from the trash; its trees must be gone. If an ephemeral
// sandbox left only its record, the directory stays for the next new sandbox, unless the record has values of variables,
// which may be secrets.
func (d Discarded) Forget() error {
	if err := d.c.plan.Point("forget it"); err != nil {
		return fail("removing", d.Path, err)
	}
	values := slices.ContainsFunc(d.Policy.Env, func(v string) bool { return strings.Contains(v, "=") })
	if d.Ephemeral && !values && d.makeSpare() {
		return nil
	}
	return removeAll(d.Path)
}

// makeSpare moves the discarded sandbox's directory to DIR/spare, where the next new sandbox reuses it and
// overwrites the record. It returns false, and moves nothing, if the directory contains more than the record,
// or if there are enough spare ones.
func (d Discarded) makeSpare() bool {
	entries, err := os.ReadDir(d.Path)
	if err != nil || len(entries) != 1 || entries[0].Name() != record {
		return false
	}
	for i := range spares {
		if vfs.RenameNew(d.Path, d.c.spare(i)) == nil {
			return true
		}
	}
	return false
}

// removeAll removes a directory tree that the processes of a sandbox filled. It makes directories accessible
// first, and removes symbolic links without following them.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(path, func(p string, e os.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			os.Chmod(p, 0o700) //nolint:errcheck //nolint:errcheck // RemoveAll reports directories that stay inaccessible
		}
		return nil
	})
	return os.RemoveAll(path)
}

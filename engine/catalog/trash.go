package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Discard takes the sandbox's name away and moves its directory to the trash,
// where [Catalog.Trash] finds it until its trees are given back. Atomic, in
// constant time. The lock is released.
func (h *Held) Discard() error {
	defer h.Release()
	err := h.c.plan.Point("move it to the trash")
	if err == nil {
		err = os.Rename(h.c.Path(h.Name), filepath.Join(h.c.dir, trash, h.Name+"."+h.ID))
	}
	if err != nil {
		return fail("removing", h.Name, err)
	}
	return nil
}

// A Discarded sandbox has lost its name; its trees may still be there.
type Discarded struct {
	*Record
	// Path is its directory in the trash.
	Path string
	c    *Catalog
	lock *os.File
}

// Trash lists the discarded sandboxes that no other process works on, and keeps
// others off them until they are released. One whose record cannot be read is
// listed as an error and left alone.
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
		if err == nil {
			found = append(found, d)
			continue
		}
		if errors.Is(err, errs.ErrNotFound) { // its trees are gone: only the directory is left
			err = removeAll(d.Path)
		}
		failures = append(failures, err)
		d.Release()
	}
	return found, compact(failures)
}

// tryLock locks a directory that bears this name; nil where another process
// has it, or it has gone.
func tryLock(path string) *os.File {
	dir, err := os.Open(path)
	if err != nil {
		return nil
	}
	if syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !sameFile(dir, path) {
		dir.Close()
		return nil
	}
	return dir
}

func compact(failures []error) []error {
	kept := failures[:0]
	for _, err := range failures {
		if err != nil {
			kept = append(kept, err)
		}
	}
	return kept
}

// Release lets others work on it. Releasing twice is harmless.
func (d Discarded) Release() { d.lock.Close() }

// Forget removes a discarded sandbox's directory, once its trees are gone, or
// puts it by for the next one where it holds nothing but the record.
func (d Discarded) Forget() error {
	if err := d.c.plan.Point("forget it"); err != nil {
		return fail("removing", d.Path, err)
	}
	if d.Ephemeral && d.putBy() {
		return nil
	}
	return removeAll(d.Path)
}

// putBy makes the directory a spare one. The record in it is the file that the
// next one is written to.
func (d Discarded) putBy() bool {
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

// removeAll removes a directory whose content a sandbox may have written:
// directories without permissions are opened up first. Symbolic links are
// removed, never followed.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(path, func(p string, e os.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			os.Chmod(p, 0o700) //nolint:errcheck // RemoveAll below reports what stays closed
		}
		return nil
	})
	return os.RemoveAll(path)
}

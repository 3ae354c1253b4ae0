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

// Forget removes the directory of a discarded sandbox from the trash; its trees must be gone. If the sandbox left no
// more than most leave, the directory stays for the next new sandbox, unless the record of an ephemeral one has values of
// variables, which may be secrets.
func (d Discarded) Forget() error {
	if err := d.c.plan.Point("forget it"); err != nil {
		return fail("removing", d.Path, err)
	}
	values := slices.ContainsFunc(d.Policy.Env, func(v string) bool { return strings.Contains(v, "=") })
	if !(d.Ephemeral && values) && d.makeSpare() {
		return nil
	}
	return removeAll(d.Path)
}

// makeSpare moves the discarded sandbox's directory to DIR/spare, where the next new sandbox reuses it and overwrites
// the record. It returns false, and moves nothing, if the directory contains more than most sandboxes
// leave, or if there are enough spare ones.
func (d Discarded) makeSpare() bool {
	entries, err := os.ReadDir(d.Path)
	if err != nil || d.Ephemeral && (len(entries) != 1 || entries[0].Name() != record) || !d.Ephemeral && !d.strip(entries) {
		return false
	}
	for i := range spares {
		if vfs.RenameNew(d.Path, d.c.spare(d.Ephemeral, i)) == nil {
			return true
		}
	}
	return false
}

// What most sandboxes leave: the directory that their processes had as /tmp, the log of their supervisor, the number of
// their stops, and the directory for the originals of their first base. See packages hostfs, supervise and baseline.
const (
	spareTmp    = "tmp"
	spareLog    = "keeper.log"
	spareStops  = "stops"
	spareBases  = "bases"
	spareBase   = "bases/0"
	spareWindow = "window" // in spareBase
	temporary   = ".new"   // ends the name of the file that replaces another one
)

// strip removes what the discarded sandbox, whose directory has the entries, has stored. It leaves an empty log, empty
// directories, and the files of the record and of the window under the names of temporary ones, to be written anew: on
// ext4 it takes long to make files and directories where many were removed lately. It leaves nothing that a process of
// the sandbox could reach, so not its /tmp. It returns false, after which the caller removes everything, if the sandbox
// had a file that most have not.
func (d Discarded) strip(entries []os.DirEntry) bool {
	window := filepath.Join(spareBase, spareWindow)
	for _, e := range entries {
		switch e.Name() {
		case record, record + temporary, recordCopy, reserveFile, spareStops, spareTmp:
		case spareLog:
			if info, err := e.Info(); err != nil || info.Size() > 0 {
				return false
			}
		case spareBases:
			if !hasOnly(filepath.Join(d.Path, spareBases), filepath.Base(spareBase)) || !hasOnly(filepath.Join(d.Path, spareBase), spareWindow, spareWindow+temporary) {
				return false
			}
		default:
			return false
		}
	}
	// The record goes first: Trash removes a directory without one, in case this process is killed.
	for _, name := range []string{record, window} {
		from, to := filepath.Join(d.Path, name), filepath.Join(d.Path, name+temporary)
		if err := os.Rename(from, to); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	err := os.Truncate(filepath.Join(d.Path, record+temporary), 0) // it may have values of variables
	for _, name := range []string{recordCopy, reserveFile, spareStops} {
		if rerr := os.Remove(filepath.Join(d.Path, name)); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = rerr
		}
	}
	return errors.Join(err, removeAll(filepath.Join(d.Path, spareTmp))) == nil
}

// hasOnly reports whether a directory has no entries but such of these names; one that does not exist has none.
func hasOnly(dir string, names ...string) bool {
	entries, err := os.ReadDir(dir)
	return (err == nil || errors.Is(err, os.ErrNotExist)) && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !slices.Contains(names, e.Name()) })
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

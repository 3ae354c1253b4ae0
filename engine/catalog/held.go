package catalog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
)

// Held is a sandbox's record under its lock: no other process changes the
// sandbox until Release. A lock dies with the process that holds it.
type Held struct {
	*Record
	c   *Catalog
	dir *os.File
}

// patience is how long a command waits for another one's lock before it says
// that the sandbox is in use.
const patience = 20 * time.Second

// Hold locks a sandbox and reads its record. ErrNotFound; ErrBusy when another
// command has held it for 20 s; ErrInterrupted.
func (c *Catalog) Hold(ctx context.Context, name string) (*Held, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(patience)
	for {
		h, err := c.tryHold(name)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return h, err
		}
		if time.Now().After(deadline) {
			return nil, &snapshot.Error{Op: "locking", Path: name, Kind: snapshot.ErrBusy,
				Err: errors.New("another snapfs command works on it")}
		}
		select {
		case <-ctx.Done():
			return nil, &snapshot.Error{Op: "locking", Path: name, Kind: snapshot.ErrInterrupted, Err: ctx.Err()}
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// tryHold takes the lock of the directory that bears the name now. A directory
// that lost its name between the opening and the locking is let go again.
func (c *Catalog) tryHold(name string) (*Held, error) {
	path := c.Path(name)
	dir, err := os.Open(path)
	if err != nil {
		_, err = c.read(filepath.Join(path, record), name)
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		dir.Close()
		return nil, err
	}
	r, err := c.Get(name)
	if err == nil && !sameFile(dir, path) {
		err = syscall.EWOULDBLOCK
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return &Held{Record: r, c: c, dir: dir}, nil
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// Save replaces the record. Atomic: a reader sees the old one or the new one;
// an error leaves the old one. A sandbox that is not ephemeral is on stable
// storage when Save returns.
func (h *Held) Save() error { return h.c.write(h.Record, !h.Ephemeral) }

// Release gives the lock back. Releasing twice is harmless.
func (h *Held) Release() { h.dir.Close() }

// Rename gives the sandbox another name, keeping the lock. ErrExists leaves it
// as it was.
func (h *Held) Rename(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	old := h.Name
	if err := kernel.RenameNew(h.c.Path(old), h.c.Path(name)); err != nil {
		if errors.Is(err, syscall.EEXIST) {
			return &snapshot.Error{Op: "naming a sandbox", Path: name, Kind: snapshot.ErrExists,
				Err: errors.New("the name is taken"), Hints: []string{"snapfs ls"}}
		}
		return fail("renaming "+old+" to", name, err)
	}
	h.Name = name
	return h.Save()
}

// Discard takes the sandbox's name away and moves its directory to the trash,
// where [Catalog.Trash] finds it until its trees are given back. Atomic, in
// constant time. The lock is released.
func (h *Held) Discard() error {
	defer h.Release()
	to := filepath.Join(h.c.dir, trash, h.Name+"."+h.ID)
	if err := os.Rename(h.c.Path(h.Name), to); err != nil {
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
}

// Trash lists the discarded sandboxes. One whose record cannot be read is
// listed as an error and left alone.
func (c *Catalog) Trash() ([]Discarded, []error) {
	dir := filepath.Join(c.dir, trash)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, []error{fail("listing", dir, err)}
	}
	var found []Discarded
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		r, err := c.read(filepath.Join(path, record), e.Name())
		switch {
		case err == nil:
			found = append(found, Discarded{r, path, c})
		case errors.Is(err, snapshot.ErrNotFound): // its trees are gone: only the directory is left
			errs = append(errs, removeAll(path))
		default:
			errs = append(errs, err)
		}
	}
	return found, compact(errs)
}

func compact(errs []error) []error {
	kept := errs[:0]
	for _, err := range errs {
		if err != nil {
			kept = append(kept, err)
		}
	}
	return kept
}

// Forget removes a discarded sandbox's directory, once its trees are gone, or
// puts it by for the next one where it holds nothing but the record.
func (d Discarded) Forget() error {
	if d.Ephemeral && d.putBy() {
		return nil
	}
	return removeAll(d.Path)
}

// putBy makes the directory a spare one: the record becomes the file that the
// next record is written to, so that a spare directory has no record.
func (d Discarded) putBy() bool {
	entries, err := os.ReadDir(d.Path)
	if err != nil || len(entries) != 1 || entries[0].Name() != record {
		return false
	}
	if os.Rename(filepath.Join(d.Path, record), filepath.Join(d.Path, record+".new")) != nil {
		return false
	}
	for i := range spares {
		if kernel.RenameNew(d.Path, d.c.spare(i)) == nil {
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
	filepath.WalkDir(path, func(p string, e os.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			os.Chmod(p, 0o700) //nolint:errcheck // RemoveAll below reports what stays closed
		}
		return nil
	})
	return os.RemoveAll(path)
}

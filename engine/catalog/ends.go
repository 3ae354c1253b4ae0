package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// An End is a file whose name says when a sandbox will be removed. Each command finds the sandboxes that are
// due by listing these names, without reading all records. The name is "WALL.BOOT.UP.ID.SANDBOX": the time by
// the wall clock and since boot, both in milliseconds. An End may be outdated; the sandbox's record decides.
type End struct {
	Name, ID string
	// By is the time of the end.
	By   Instant
	path string
}

// bootName is how many characters of the kernel's boot id an [End]'s file name contains, enough to tell two
// boots of one machine from each other.
const bootName = 8

// NoteEnd creates an [End] for the time at which the sandbox of r will be removed, and does nothing if r has
// no such time. The caller does this before it saves a record with a removal time. Earlier entries for the
// sandbox stay. Cost: one system call.
func (c *Catalog) NoteEnd(r *Record, now Instant) error {
	_, err := c.noteEnd(r, now)
	return err
}

// RenoteEnd replaces e, an outdated file whose name says when a sandbox will be removed, by one for the
// removal time that r has now. If r has none, it only removes e.
func (c *Catalog) RenoteEnd(e *End, r *Record, now Instant) error {
	path, err := c.noteEnd(r, now)
	if err != nil || path == e.path {
		return err
	}
	return e.Drop()
}

func (c *Catalog) noteEnd(r *Record, now Instant) (path string, err error) {
	over := r.Policy.Limits.RemovalAge()
	if over == 0 || r.Ended != nil {
		return "", nil
	}
	left := over - r.AgeAt(now) + time.Millisecond // so that a due entry is past its end
	wall, up := now.Wall.Add(left).UnixMilli(), max(0, now.Up+left).Milliseconds()
	path = filepath.Join(c.dir, ends, fmt.Sprintf("%d.%.*s.%d.%s.%s", max(0, wall), bootName, now.Boot, up, r.ID, r.Name))
	if err := c.plan.Point("note when it ends"); err != nil {
		return path, fail("writing", path, err)
	}
	link := func() error {
		err := os.Link(filepath.Join(c.dir, format), path)
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return os.Symlink(format, path) // as for an Intent
		}
		return err
	}
	err = link()
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = link()
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return path, fail("writing", path, err)
	}
	return path, nil
}

// Ends lists the removal times of all sandboxes that have one. Cost: one readdir, or one system call if there
// never was one.
func (c *Catalog) Ends() ([]End, error) {
	dir := filepath.Join(c.dir, ends)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fail("listing", dir, err)
	}
	var found []End
	for _, e := range entries {
		parts := strings.SplitN(e.Name(), ".", 5)
		if len(parts) < 5 {
			continue // not an entry
		}
		wall, err := strconv.ParseInt(parts[0], 10, 64)
		up, uerr := strconv.ParseInt(parts[2], 10, 64)
		if err == nil && uerr == nil {
			by := Instant{Wall: time.UnixMilli(wall), Boot: parts[1], Up: time.Duration(up) * time.Millisecond}
			found = append(found, End{Name: parts[4], ID: parts[3], By: by, path: filepath.Join(dir, e.Name())})
		}
	}
	return found, nil
}

// Due reports whether the time of the sandbox's removal, which its limits set, is at or before now.
func (e *End) Due(now Instant) bool {
	if e.By.Boot != "" && strings.HasPrefix(now.Boot, e.By.Boot) {
		return now.Up >= e.By.Up
	}
	return !now.Wall.Before(e.By.Wall)
}

// Drop removes the small file that stores this end, the time of a sandbox's removal. A missing
// file is no error.
func (e *End) Drop() error {
	if err := os.Remove(e.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail("removing", e.path, err)
	}
	return nil
}

//go:build linux

package pool

import (
	"errors"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/mount"
	"golang.org/x/sys/unix"
)

// The states of a workspace on a pool. Those other than imported and adopted exist only during an operation,
// or after it was killed.
const (
	imported = "imported" // the pool has a copy of it
	moving   = "moving"   // an adoption is renaming the directory
	adopted  = "adopted"  // the workspace is on the pool and mounted at its path
	leaving  = "leaving"  // Unadopt is copying it back
	leftOff  = "returned" // the copy back is complete, and is being renamed
)

// A record describes one workspace on the pool, as JSON in a file of its own: where it is, and whether the
// pool has a copy or the workspace itself.
type record struct {
	Format int       `json:"format"`
	Path   string    `json:"path"`
	State  string    `json:"state"`
	Synced time.Time `json:"synced"`
	// Original is the path of the directory that was adopted, or "".
	Original string `json:"original,omitempty"`
}

func key(path string) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, path) // it never fails
	return strconv.FormatUint(h.Sum64(), 16)
}

func (p *Pool) recordFile(path string) string {
	return filepath.Join(p.Dir, "trees", key(path)+".json")
}

// home returns the directory, on the pool's own filesystem, with the pool's copy of the workspace at
// path and the manifest of that copy.
func (p *Pool) home(path string) string { return filepath.Join(p.mnt(), "trees", key(path)) }
func (p *Pool) tree(path string) string { return filepath.Join(p.home(path), "tree") }

func (p *Pool) lockFile(path string) string {
	return filepath.Join(p.Dir, "trees", key(path)+".lock")
}

func (p *Pool) lockTree(path string) (func(), error) { return lock(p.lockFile(path)) }

// record reads the record of the workspace at path, which says how the pool holds it. Errors: fs.ErrNotExist.
func (p *Pool) record(path string) (record, error) {
	var r record
	err := readJSON(p.recordFile(path), &r)
	if err == nil && r.Path != path {
		err = os.ErrNotExist // another path with the same hash
	}
	return r, err
}

func (p *Pool) saveRecord(r record) error {
	r.Format = format
	return writeJSON(p.recordFile(r.Path), r)
}

func (p *Pool) records() ([]record, error) {
	files, err := filepath.Glob(filepath.Join(p.Dir, "trees", "*.json"))
	if err != nil {
		return nil, err
	}
	var all []record
	for _, file := range files {
		var r record
		err := readJSON(file, &r)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// A Status describes a pool for the user: its sizes, its workspaces and what uses it.
type Status struct {
	Name, Image, Mount string
	// Size is the limit of the pool's size, OnDisk the present size of its file, Free the space
	// that can still be written.
	Size, OnDisk, Free snapshot.Bytes
	// HostFree is the free space of the filesystem below the image. Reserve is the part of it that
	// the pool leaves free.
	HostFree, Reserve snapshot.Bytes
	Trees             []TreeStatus
	// InUse lists the users of the pool, such as "3 forks".
	InUse []string
}

// A TreeStatus describes for the user one workspace that is on a pool. A [Status] has one for each.
type TreeStatus struct {
	Path string
	// Adopted is set if the workspace itself is on the pool; otherwise the pool has a copy of
	// it.
	Adopted bool
	// Synced is the time of the last update of the copy.
	Synced time.Time
	// Original is the path of the directory that was adopted, or "".
	Original string
	// Fstab is a line of fstab(5) that mounts an adopted workspace at boot, before the first snapfs
	// command does.
	Fstab string
}

// Status returns the pool's sizes, its workspaces and what uses it, for the user.
func (p *Pool) Status() (Status, error) {
	s := Status{Name: p.Name, Image: p.image(), Mount: p.mnt()}
	var st unix.Stat_t
	fs, err := mount.FilesystemOf(p.mnt())
	if err == nil {
		err = unix.Stat(p.image(), &st)
	}
	if err != nil {
		return s, failed("reading the status of the pool", p.Name, "", err)
	}
	s.Size, s.OnDisk, s.Free = snapshot.Bytes(st.Size), snapshot.Bytes(st.Blocks*512), snapshot.Bytes(fs.Avail)
	free, reserve, err := p.host()
	if err != nil {
		return s, failed("reading the status of the pool", p.Name, "", err)
	}
	s.HostFree, s.Reserve = snapshot.Bytes(free), snapshot.Bytes(reserve)
	records, err := p.records()
	if err == nil {
		s.InUse, err = p.users()
	}
	for _, r := range records {
		t := TreeStatus{Path: r.Path, Adopted: r.State != imported, Synced: r.Synced, Original: r.Original}
		if t.Adopted {
			t.Fstab = strings.Join([]string{escape(p.tree(r.Path)), escape(r.Path), "none", "bind,nofail", "0", "0"}, " ")
		}
		s.Trees = append(s.Trees, t)
	}
	return s, failed("reading the status of the pool", p.Name, "", err)
}

// escape returns path as fstab(5) writes it: with the characters that separate fields escaped. It is for a
// line that the user may add to fstab.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(path)
}

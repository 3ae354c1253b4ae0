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

// The states of a workspace on a pool.
const (
	imported = "imported" // the pool has a copy of it
	moving   = "moving"   // adoption has begun to put it aside
	adopted  = "adopted"  // the pool has it, and it is mounted where it was
	leaving  = "leaving"  // a copy back is being made
	leftOff  = "returned" // the copy back is whole, and takes its place
)

// A record is what is known of one workspace.
type record struct {
	Format int       `json:"format"`
	Path   string    `json:"path"`
	State  string    `json:"state"`
	Synced time.Time `json:"synced"`
	// Original is where adoption put the directory as it was, or "".
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

// home is the directory on the pool that is about a workspace, tree the
// subvolume in it that holds its content.
func (p *Pool) home(path string) string { return filepath.Join(p.mnt(), "trees", key(path)) }
func (p *Pool) tree(path string) string { return filepath.Join(p.home(path), "tree") }

func (p *Pool) lockFile(path string) string {
	return filepath.Join(p.Dir, "trees", key(path)+".lock")
}

func (p *Pool) lockTree(path string) (func(), error) { return lock(p.lockFile(path)) }

// record reads what is known of a workspace; fs.ErrNotExist.
func (p *Pool) record(path string) (record, error) {
	var r record
	err := readJSON(p.recordFile(path), &r)
	if err == nil && r.Path != path {
		err = os.ErrNotExist // another path with the same hash
	}
	return r, err
}

func (p *Pool) keep(r record) error {
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

// A Status is the state of a pool.
type Status struct {
	Name, Image, Mount string
	// Size is what the pool may grow to, OnDisk what its file takes up now,
	// Free what may still be written.
	Size, OnDisk, Free snapshot.Bytes
	// HostFree is what is free on the filesystem that the file lies on, Reserve
	// what of it the pool does not take.
	HostFree, Reserve snapshot.Bytes
	Trees             []TreeStatus
	// InUse says what lives on it: "3 forks".
	InUse []string
}

// A TreeStatus is a workspace on a pool.
type TreeStatus struct {
	Path string
	// Adopted: it lives on the pool; else the pool has a copy.
	Adopted bool
	// Synced is when the copy was last brought up to date.
	Synced time.Time
	// Original is where the directory is that adoption has put aside, or "".
	Original string
	// Fstab is a line that mounts an adopted workspace at boot, before the
	// first snapfs command does.
	Fstab string
}

// Status describes the pool.
func (p *Pool) Status() (Status, error) {
	s := Status{Name: p.Name, Image: p.image(), Mount: p.mnt()}
	var st unix.Stat_t
	fs, err := mount.FilesystemOf(p.mnt())
	if err == nil {
		err = unix.Stat(p.image(), &st)
	}
	if err != nil {
		return s, failed("looking at the pool", p.Name, "", err)
	}
	s.Size, s.OnDisk, s.Free = snapshot.Bytes(st.Size), snapshot.Bytes(st.Blocks*512), snapshot.Bytes(fs.Avail)
	free, reserve, err := p.host()
	if err != nil {
		return s, failed("looking at the pool", p.Name, "", err)
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
	return s, failed("looking at the pool", p.Name, "", err)
}

// escape writes a path as fstab(5) wants it.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(path)
}

//go:build linux

package zfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const (
	snapshots = "snapshots"
	forks     = "forks"
	homes     = "homes"
	trash     = "trash"
	treeName  = "tree"
	markName  = "mark"
	// newborn begins the names of what is in the trash only until it is whole.
	newborn = "new."
	// later begins those of what a sweep could not destroy yet.
	later = "later."
	// undone begins those of what its own maker took back, with nothing on its way any more.
	undone = "undone."
	// enough is how long what a killed maker has started may go on.
	enough = time.Minute
)

// A room is our part of the state directory, open: paths are relative to it,
// and no link leads out of it.
type room struct{ *os.File }

// enter opens the room. fs.ErrNotExist: nothing has been written yet.
func (b *Backend) enter() (room, error) {
	f, err := os.OpenFile(b.dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	return room{f}, err
}

// settle opens the room, and makes what is missing of it first.
func (b *Backend) settle() (room, error) {
	for _, dir := range []string{snapshots, forks, homes, trash} {
		if err := os.MkdirAll(filepath.Join(b.dir, dir), 0o700); err != nil {
			return room{}, err
		}
	}
	return b.enter()
}

func (r room) fd() int { return int(r.Fd()) }

// writeFile makes a file, which is on stable storage afterwards. Its name need not be: see [room.sync].
func (r room) writeFile(path, text string) error {
	f, err := vfs.OpenBeneath(r.fd(), path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// sync brings the names that a directory has to stable storage.
func (r room) sync(path string) error {
	dir, err := vfs.OpenBeneath(r.fd(), path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func (r room) readFile(path string) (string, error) {
	f, err := vfs.OpenBeneath(r.fd(), path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(text), err
}

func (r room) mkdir(path string) error {
	if err := unix.Mkdirat(r.fd(), path, 0o700); err != nil {
		return &os.PathError{Op: "make", Path: path, Err: err}
	}
	return nil
}

// rename moves an entry, or a mark over another. Entries are never empty, so
// that none replaces another: ZFS has no RENAME_NOREPLACE before 2.2.
func (r room) rename(from, to string) error {
	if err := unix.Renameat(r.fd(), from, r.fd(), to); err != nil {
		return &os.PathError{Op: "rename", Path: to, Err: err}
	}
	return nil
}

func (r room) list(path string) ([]string, error) {
	dir, err := vfs.OpenBeneath(r.fd(), path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// load reads the mark of an entry. ErrNotFound, ErrCorrupt.
func (r room) load(kind, id string) (mark, error) {
	if !snapshot.ValidID(id) {
		return mark{}, notFound("not an id")
	}
	text, err := r.readFile(kind + "/" + id + "/" + markName)
	if err != nil {
		return mark{}, absent(err)
	}
	m, err := parseMark(text)
	if err == nil && (m.kind != kind || m.id != id) {
		err = notFound("its mark is of something else")
	}
	return m, err
}

// find is load of what can be used.
func (r room) find(kind, id string) (mark, error) {
	m, err := r.load(kind, id)
	if err == nil {
		err = running(m.dataset)
	}
	return m, err
}

// discard moves an entry to the trash. It is no error when it is not there.
func (r room) discard(path string) error { return r.discardAs(path, "") }

func (r room) discardAs(path, prefix string) error {
	err := r.rename(path, trash+"/"+prefix+filepath.Base(path)+"."+unique())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// newbornName says which process makes it.
func newbornName() string {
	start := uint64(0)
	if p, err := proc.Self(); err == nil {
		start = p.Start
	}
	return newborn + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(start, 10) + "-" + unique()
}

// beingBorn reports whether the process that makes what has this name still runs.
func beingBorn(name string) bool {
	rest, ok := strings.CutPrefix(name, newborn)
	parts := strings.SplitN(rest, "-", 3)
	if !ok || len(parts) < 3 {
		return false
	}
	pid, err1 := strconv.Atoi(parts[0])
	start, err2 := strconv.ParseUint(parts[1], 10, 64)
	return err1 == nil && err2 == nil && (start == 0 || proc.Alive(proc.Process{PID: pid, Start: start}))
}

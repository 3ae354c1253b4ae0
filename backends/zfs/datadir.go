//go:build linux

package zfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	// incomplete is the name prefix of directories of snapshots and forks that are just being made. They are
	// made in the trash, so that a sweep deletes what a killed process leaves.
	incomplete = "new."
	// later is the name prefix, in the trash, of snapshots and forks whose datasets a sweep could not destroy
	// yet.
	later = "later."
	// undone is the name prefix, in the trash, of half-made snapshots and forks whose maker gave them up
	// after an error. No call for them is still running, so Sweep need not wait for makerTimeout.
	undone = "undone."
	// makerTimeout is the longest time for which ZFS calls of a killed process may still take effect. A sweep
	// leaves the remains of that process alone until then.
	makerTimeout = time.Minute
)

// A dataDir is this backend's open directory in the state directory, which maps ids of snapshots and forks to
// datasets. Paths are relative to it, and are opened without following symbolic links.
type dataDir struct{ *os.File }

// enter opens the backend's directory in the state directory; the caller closes it. Before the first write
// there is none: fs.ErrNotExist.
func (b *Backend) enter() (dataDir, error) {
	f, err := os.OpenFile(b.dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	return dataDir{f}, err
}

// openOrCreate opens the backend's directory in the state directory, and creates it if it does not exist.
func (b *Backend) openOrCreate() (dataDir, error) {
	for _, dir := range []string{snapshots, forks, homes, trash} {
		if err := os.MkdirAll(filepath.Join(b.dir, dir), 0o700); err != nil {
			return dataDir{}, err
		}
	}
	return b.enter()
}

func (r dataDir) fd() int { return int(r.Fd()) }

// writeFile creates the file path, such as the description of a fork, with this text on stable storage. Its
// name is durable only after [dataDir.sync].
func (r dataDir) writeFile(path, text string) error {
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

// sync makes the names in the directory path durable (fsync), so that files created there survive a power
// cut.
func (r dataDir) sync(path string) error {
	dir, err := vfs.OpenBeneath(r.fd(), path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func (r dataDir) readFile(path string) (string, error) {
	f, err := vfs.OpenBeneath(r.fd(), path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(text), err
}

func (r dataDir) mkdir(path string) error {
	if err := unix.Mkdirat(r.fd(), path, 0o700); err != nil {
		return &os.PathError{Op: "make", Path: path, Err: err}
	}
	return nil
}

// rename renames the directory of a snapshot or fork, or gives the new mark from, the text file that
// describes it, the name to of the old one. Such a directory is never empty, so it cannot be replaced by
// mistake; ZFS has no RENAME_NOREPLACE before 2.2.
func (r dataDir) rename(from, to string) error {
	if err := unix.Renameat(r.fd(), from, r.fd(), to); err != nil {
		return &os.PathError{Op: "rename", Path: to, Err: err}
	}
	return nil
}

func (r dataDir) list(path string) ([]string, error) {
	dir, err := vfs.OpenBeneath(r.fd(), path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// load reads the mark, the text file that describes the snapshot or fork id; kind is its parent directory.
// Errors: ErrNotFound, ErrCorrupt.
func (r dataDir) load(kind, id string) (mark, error) {
	if !snapshot.ValidID(id) {
		return mark{}, notFound("not a valid id")
	}
	text, err := r.readFile(kind + "/" + id + "/" + markName)
	if err != nil {
		return mark{}, notFoundIfMissing(err)
	}
	m, err := parseMark(text)
	if err == nil && (m.kind != kind || m.id != id) {
		err = notFound("the mark is of another entry")
	}
	return m, err
}

// find reads the mark, the text file that describes the snapshot or fork id in the directory kind, as load
// does. It returns an error if the pool is suspended, since calls would block.
func (r dataDir) find(kind, id string) (mark, error) {
	m, err := r.load(kind, id)
	if err == nil {
		err = checkRunning(m.dataset)
	}
	return m, err
}

// discard moves the entry at path to the trash, which Sweep empties. An entry that does not exist is no
// error.
func (r dataDir) discard(path string) error { return r.discardAs(path, "") }

func (r dataDir) discardAs(path, prefix string) error {
	err := r.rename(path, trash+"/"+prefix+filepath.Base(path)+"."+unique())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// incompleteName returns a unique name for the directory of a snapshot or fork while it is being made. The
// name contains the identity of this process.
func incompleteName() string { return incomplete + proc.Name() + "-" + unique() }

// inProgress reports whether the process that makes the snapshot or fork in the directory of this name is
// still running.
func inProgress(name string) bool {
	rest, ok := strings.CutPrefix(name, incomplete)
	return ok && proc.NameRuns(rest)
}

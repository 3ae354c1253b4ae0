//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A store holds the records, the layers and the trash of one state directory. It has no other state,
// so that any number of processes may use the same directory.
type store struct {
	dir       string
	userXattr bool // overlayfs's attributes are user.* instead of trusted.*
	storage   QuotaStorage
	mergeAt   int // shorten replaces layers of a longer chain by a merged one
}

// prepare makes the directories of the layout. Callers try first and call prepare only after
// ENOENT, that is at the first use of the state directory. The directory that the first verb needs
// is made last: a process that finds it finds all others.
func (s *store) prepare() error {
	for _, dir := range []string{"forks", "layers", "tmp", "trash", "old", "snapshots"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
			return err
		}
	}
	// A hint only: ext4 then gives each layer a block group of its own, where few inodes were
	// deleted recently (see spare.go).
	_ = vfs.SpreadDirs(s.dir + "/layers")
	return nil
}

// create writes the record of a new snapshot or fork.
func (s *store) create(ctx context.Context, path string, r *record) error {
	if err := fault.Point(ctx, "write the record"); err != nil {
		return err
	}
	err := s.writeRecord(path, r.text())
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.prepare(); err == nil {
			err = s.writeRecord(path, r.text())
		}
	}
	return err
}

// replace replaces the record of a fork. It fails with ErrNotExist if the fork was removed
// meanwhile, and never creates it again. Atomic.
func (s *store) replace(ctx context.Context, path string, r *record) error {
	if err := fault.Point(ctx, "replace the record"); err != nil {
		return err
	}
	next := filepath.Join(s.dir, "tmp", uniqueName("record"))
	if err := s.writeRecord(next, r.text()); err != nil {
		return err
	}
	err := vfs.Replace(next, path)
	_ = s.retire(next) // after the exchange this is the old record; Sweep removes it if retire fails
	if err != nil {
		return &fs.PathError{Op: "exchange", Path: path, Err: err}
	}
	return nil
}

// checkID checks that id is valid and that ctx has not ended.
func checkID(ctx context.Context, id string) error {
	if !snapshot.ValidID(id) {
		return because(errs.ErrNotSupported, "", "an id has 1 to 64 characters of a-z, 0-9 and -, and does not begin with -")
	}
	return ctx.Err()
}

// find reads the record of a complete snapshot or fork.
func find(id, path string) (record, error) {
	if !snapshot.ValidID(id) {
		return record{}, because(errs.ErrNotFound, "", "not a valid id")
	}
	r, err := read(path)
	if errors.Is(err, errIncomplete) {
		return r, because(errs.ErrNotFound, path, errIncomplete.Error())
	}
	return r, err
}

// forget removes a record, complete or not, if it carries this backend's mark. Sweep removes its
// layers later.
func (s *store) forget(ctx context.Context, id, path string) error {
	if !snapshot.ValidID(id) {
		return nil // no record of this backend has such a name
	}
	_, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errIncomplete), errors.Is(kindOf(err), errs.ErrCorrupt): // an incomplete or damaged record of this backend
	case errors.Is(kindOf(err), errs.ErrDenied), errors.Is(kindOf(err), errs.ErrNotSupported):
		return because(errs.ErrDenied, path, "the record does not belong to this backend: "+err.Error())
	case err != nil: // the record is not readable
		return failed("read", path, err)
	}
	if err := fault.Point(ctx, "remove the record"); err != nil {
		return err
	}
	return failed("remove", path, s.retire(path))
}

// ids lists the records in a directory, complete or not, sorted.
func ids[T ~string](s *store, dir string) ([]T, error) {
	entries, err := readDir(filepath.Join(s.dir, dir)) // sorted
	var found []T
	for _, e := range entries {
		if e.Type().IsRegular() && snapshot.ValidID(e.Name()) {
			found = append(found, T(e.Name()))
		}
	}
	return found, err
}

// lock takes the lock on the set of live layers: shared to write a record that names a layer,
// exclusive to remove layers that no record names. unlock releases it, as does the end of the
// process.
func (s *store) lock(ctx context.Context, how int) (unlock func(), err error) {
	path := s.dir + "/lock"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err == unix.ENOENT {
		if err := s.prepare(); err != nil {
			return nil, err
		}
		fd, err = unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err := flock(ctx, fd, how); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return func() { unix.Close(fd) }, nil
}

// lockLayer excludes other seals and syncs of the same fork. A caller of both locks takes lockLayer
// first.
func (s *store) lockLayer(ctx context.Context, layer string) (unlock func(), err error) {
	path := s.layerPath(layer)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err := flock(ctx, fd, unix.LOCK_EX); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return func() { unix.Close(fd) }, nil
}

// flock waits for a lock until ctx ends.
func flock(ctx context.Context, fd, how int) error {
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		err := unix.Flock(fd, how|unix.LOCK_NB)
		switch err {
		case nil:
			return nil
		case unix.EINTR, unix.EWOULDBLOCK:
		default:
			return os.NewSyscallError("flock", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// toTrash moves path into the trash. If that fails, Sweep will find path.
func (s *store) toTrash(path string) {
	_ = vfs.RenameNew(path, filepath.Join(s.dir, "trash", uniqueName("")))
}

// uniqueName returns a unique name.
func uniqueName(prefix string) string { return prefix + strconv.FormatUint(rand.Uint64(), 36) }

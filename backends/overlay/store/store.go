//go:build linux

package store

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/trash"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Store holds the records of snapshots and forks, the layers and the trash of one state directory. It has
// no state in memory, so that any number of processes may use the same directory.
type Store struct {
	Dir       string
	UserXattr bool // overlayfs's attributes are user.* instead of trusted.*
	Storage   QuotaStorage
	// ChainLimits returns the lengths of a chain of layers beyond which Shorten replaces layers by
	// a merged one, and at which the caller must merge it. It is a function, so that opening a
	// Store does not ask for the kernel's version.
	ChainLimits func() (mergeAt, most int)
}

// Prepare makes the store's directories. Callers call it only after ENOENT, at the first use
// of the state directory. It makes last the directory that every method needs first, so that a
// process that finds it finds all others.
func (s *Store) Prepare() error {
	for _, dir := range []string{"forks", "layers", "tmp", "trash", "old", "snapshots"} {
		if err := os.MkdirAll(filepath.Join(s.Dir, dir), 0o700); err != nil {
			return err
		}
	}
	// A hint only: ext4 then gives each layer, and each copy of one, a block group of its own, where few inodes
	// were deleted recently (see spare.go).
	_, _ = vfs.SpreadDirs(s.Dir+"/layers"), vfs.SpreadDirs(s.Dir+"/tmp")
	return nil
}

// Create writes the record r of a new snapshot or fork to the file path, which must not exist.
func (s *Store) Create(ctx context.Context, path string, r *Record) error {
	if err := fault.Point(ctx, "write the record"); err != nil {
		return err
	}
	err := s.writeRecord(path, r.text())
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.Prepare(); err == nil {
			err = s.writeRecord(path, r.text())
		}
	}
	return err
}

// Replace replaces the record of a fork in the file path by r. Atomic. ErrNotExist: the fork was removed
// meanwhile; Replace does not create it again.
func (s *Store) Replace(ctx context.Context, path string, r *Record) error {
	if err := fault.Point(ctx, "replace the record"); err != nil {
		return err
	}
	next := filepath.Join(s.Dir, "tmp", UniqueName("record"))
	if err := s.writeRecord(next, r.text()); err != nil {
		return err
	}
	err := vfs.Replace(next, path)
	_ = s.Retire(next) // after the exchange this is the old record; Sweep removes it if retire fails
	if err != nil {
		return &fs.PathError{Op: "exchange", Path: path, Err: err}
	}
	return nil
}

// CheckID returns an error if the id of a snapshot or fork is malformed, or if ctx has ended. Operations of
// the backend call it first.
func CheckID(ctx context.Context, id string) error {
	if !snapshot.ValidID(id) {
		return Refuse(errs.ErrNotSupported, "", "an id has 1 to 64 characters of a-z, 0-9 and -, and does not begin with -")
	}
	return ctx.Err()
}

// Find reads the record of a snapshot or fork at path. ErrNotFound: id is malformed, or the record incomplete.
func Find(id, path string) (Record, error) {
	if !snapshot.ValidID(id) {
		return Record{}, Refuse(errs.ErrNotFound, "", "not a valid id")
	}
	r, _, err := readRecord(unix.AT_FDCWD, path)
	if errors.Is(err, errIncomplete) {
		return r, Refuse(errs.ErrNotFound, path, errIncomplete.Error())
	}
	return r, err
}

// Forget removes the record of the snapshot or fork id, the file path, complete or not, if it has this backend's
// ownership mark. Sweep removes its layers later. Errors: ErrCorrupt, with a hint, for a file without the mark.
func (s *Store) Forget(ctx context.Context, id, path string) error {
	if !snapshot.ValidID(id) {
		return nil // no record of this backend has such a name
	}
	_, _, err := readRecord(unix.AT_FDCWD, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errNoMark): // it may be anybody's
		return Refuse(errs.ErrCorrupt, path, "it stays, and so do unused layers: "+errNoMark.Error(), "rm "+errs.Quoted(path)+"   # a damaged record that no sandbox needs, and then snapfs gc")
	case errors.Is(err, errIncomplete), errors.Is(errs.KindOfFile(err), errs.ErrCorrupt): // an incomplete or damaged record of this backend
	case errors.Is(errs.KindOfFile(err), errs.ErrDenied), errors.Is(errs.KindOfFile(err), errs.ErrNotSupported):
		return Refuse(errs.ErrDenied, path, "the record does not belong to this backend: "+err.Error())
	case err != nil: // the record is not readable
		return PathError("read", path, err)
	}
	return s.Drop(ctx, path)
}

// Drop removes the file path with the record of a snapshot or fork, which the caller has read. A file that is
// gone is no error.
func (s *Store) Drop(ctx context.Context, path string) error {
	if err := fault.Point(ctx, "remove the record"); err != nil {
		return err
	}
	return PathError("remove", path, s.Retire(path))
}

// IDs returns the sorted ids of the snapshots or forks that have a record in the subdirectory dir of the
// store, complete or not.
func IDs[T ~string](s *Store, dir string) ([]T, error) {
	entries, err := readDir(filepath.Join(s.Dir, dir)) // sorted
	var found []T
	for _, e := range entries {
		if e.Type().IsRegular() && snapshot.ValidID(e.Name()) {
			found = append(found, T(e.Name()))
		}
	}
	return found, err
}

// Lock takes the lock on the set of layers in use. how is LOCK_SH to write a record that names a layer,
// LOCK_EX to remove layers that no record names. unlock releases it, as does the end of the process.
func (s *Store) Lock(ctx context.Context, how int) (unlock func(), err error) {
	path := s.Dir + "/lock"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err == unix.ENOENT {
		if err := s.Prepare(); err != nil {
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
	return func() { unlockFD(fd) }, nil
}

// unlockFD releases the lock that the descriptor fd holds at once, also where a forked process has a copy of
// fd, and closes fd.
func unlockFD(fd int) {
	_ = unix.Flock(fd, unix.LOCK_UN) // closing does the same, if later
	unix.Close(fd)
}

// LockLayer locks the upper layer of a fork against other seals and syncs of that fork. A caller that takes
// both locks calls LockLayer before Lock.
func (s *Store) LockLayer(ctx context.Context, layer string) (unlock func(), err error) {
	path := s.LayerPath(layer)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err := flock(ctx, fd, unix.LOCK_EX); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return func() { unlockFD(fd) }, nil
}

// ToTrash moves the file or directory at path into the trash, to be deleted later. If that fails, Sweep finds
// it at path.
func (s *Store) ToTrash(path string) {
	_ = vfs.RenameNew(path, filepath.Join(s.Dir, "trash", UniqueName("")))
}

// flock takes the flock(2) lock how on fd, and waits for it until ctx ends, whose error it then returns.
func flock(ctx context.Context, fd, how int) error {
	return poll.Until(ctx, 100*time.Microsecond, 10*time.Millisecond, func() (bool, error) {
		err := vfs.FlockFD(fd, how|unix.LOCK_NB)
		if err == unix.EWOULDBLOCK {
			return false, nil
		}
		return true, os.NewSyscallError("flock", err)
	})
}

// EmptyTrash deletes the removed layers and records that are in the trash, and so frees their disk space.
func (s *Store) EmptyTrash(ctx context.Context) error {
	var o trash.Options
	if s.Storage != nil {
		o.Destroy = s.Storage.Destroy
	}
	return trash.Empty(ctx, s.Dir+"/trash", o)
}

// UniqueName returns a name that begins with prefix and that no other entry of the store has.
func UniqueName(prefix string) string { return prefix + strconv.FormatUint(rand.Uint64(), 36) }

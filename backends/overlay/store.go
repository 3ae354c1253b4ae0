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

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// prepare makes the directories of the layout. Callers act first, and prepare
// when that fails: it is the first use of the state directory only. The one that
// every life begins in is made last, so that who finds it finds the others.
func (b *backend) prepare() error {
	for _, dir := range []string{"forks", "layers", "tmp", "trash", "old", "snapshots"} {
		if err := os.MkdirAll(filepath.Join(b.dir, dir), 0o700); err != nil {
			return err
		}
	}
	// Only a hint: ext4 then gives each layer a part of the disk of its own, where
	// few inodes were deleted lately (see spare.go).
	_ = vfs.SpreadDirs(b.dir + "/layers")
	return nil
}

// create makes the record of a snapshot or fork that is not there yet.
func (b *backend) create(ctx context.Context, path string, r *record) error {
	if err := fault.Point(ctx, "write the record"); err != nil {
		return err
	}
	err := b.writeRecord(path, r.text())
	if errors.Is(err, fs.ErrNotExist) {
		if err = b.prepare(); err == nil {
			err = b.writeRecord(path, r.text())
		}
	}
	return err
}

// replace puts another record in the place of a fork's. It never brings back a
// fork that was removed meanwhile: that is ErrNotExist. Atomic.
func (b *backend) replace(ctx context.Context, path string, r *record) error {
	if err := fault.Point(ctx, "replace the record"); err != nil {
		return err
	}
	next := filepath.Join(b.dir, "tmp", fresh("record"))
	if err := b.writeRecord(next, r.text()); err != nil {
		return err
	}
	err := vfs.Replace(next, path)
	_ = b.retire(next) // the old record now; what stays is swept
	if err != nil {
		return &fs.PathError{Op: "exchange", Path: path, Err: err}
	}
	return nil
}

// usable refuses what cannot be an id, and to begin when ctx has ended.
func usable(ctx context.Context, id string) error {
	if !snapshot.ValidID(id) {
		return because(errs.ErrNotSupported, "", "an id is 1 to 64 characters of a-z, 0-9 and -, and does not begin with -")
	}
	return ctx.Err()
}

// find reads the record of what must be whole.
func find(id, path string) (record, error) {
	if !snapshot.ValidID(id) {
		return record{}, because(errs.ErrNotFound, "", "no id looks like that")
	}
	r, err := read(path)
	if errors.Is(err, errHalf) {
		return r, because(errs.ErrNotFound, path, errHalf.Error())
	}
	return r, err
}

// forget removes a record, whole or half made, if it is ours. That is all that
// removing takes: Sweep finds the layers.
func (b *backend) forget(ctx context.Context, id, path string) error {
	if !snapshot.ValidID(id) {
		return nil // nothing of ours can have that name
	}
	_, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errHalf), errors.Is(kindOf(err), errs.ErrCorrupt): // ours, if in a bad way
	case errors.Is(kindOf(err), errs.ErrDenied), errors.Is(kindOf(err), errs.ErrNotSupported):
		return because(errs.ErrDenied, path, "it is not this backend's: "+err.Error())
	case err != nil: // it could not be read
		return failed("read", path, err)
	}
	if err := fault.Point(ctx, "remove the record"); err != nil {
		return err
	}
	return failed("remove", path, b.retire(path))
}

// ids lists the records in a directory, whole or half made, sorted.
func ids[T ~string](b *backend, dir string) ([]T, error) {
	entries, err := readDir(filepath.Join(b.dir, dir)) // sorted
	var found []T
	for _, e := range entries {
		if e.Type().IsRegular() && snapshot.ValidID(e.Name()) {
			found = append(found, T(e.Name()))
		}
	}
	return found, err
}

// lock takes the lock on which layers are alive: shared while something names
// a layer in a new record, exclusive while layers nobody names are cleared.
// Closing the answer gives it back, as the end of the process does.
func (b *backend) lock(ctx context.Context, how int) (unlock func(), err error) {
	path := b.dir + "/lock"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err == unix.ENOENT {
		if err := b.prepare(); err != nil {
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

// lockLayer keeps others from sealing or settling the same fork. It is taken
// before the lock of the layers where both are.
func (b *backend) lockLayer(ctx context.Context, layer string) (unlock func(), err error) {
	path := b.layerPath(layer)
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

// flock waits for a lock as long as ctx lets it.
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

// discard moves what lies at path into the trash. What cannot be moved stays
// for Sweep to find.
func (b *backend) discard(path string) {
	_ = vfs.RenameNew(path, filepath.Join(b.dir, "trash", fresh("")))
}

// fresh is a name that nothing has.
func fresh(prefix string) string { return prefix + strconv.FormatUint(rand.Uint64(), 36) }

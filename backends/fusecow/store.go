//go:build linux

package fusecow

import (
	"context"
	"errors"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// prepare creates the directories of the backend's data, such as layers/ and forks/.
func (b *backend) prepare() error {
	for _, dir := range []string{"/forks", "/layers", "/quotas", "/snapshots", "/tmp", "/trash"} {
		if err := os.MkdirAll(b.dir+dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// openLock opens the file lock, on which processes take all locks of this backend's data. It creates the
// backend's directories if needed.
func (b *backend) openLock() (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW
	if err := b.prepare(); err != nil {
		return nil, err
	}
	return os.OpenFile(b.dir+"/lock", flags, 0o600)
}

// lock takes the lock on the set of layers in use. how is LOCK_SH to name a layer in a new record, LOCK_EX to
// delete layers that no record names.
func (b *backend) lock(ctx context.Context, how int) (unlock func(), err error) {
	f, err := b.waitLock(ctx, func(f *os.File) error { return vfs.Flock(f, how|unix.LOCK_NB) })
	return func() { f.Close() }, err
}

// lockFork locks the record of a fork against changes by other processes. It is taken before [backend.lock].
// It locks one byte of the lock file, chosen by the fork's id, so no file has to be removed with the fork.
// Two forks with the same byte wait for each other.
func (b *backend) lockFork(ctx context.Context, id snapshot.ForkID) (unlock func(), err error) {
	f, err := b.lockForkFile(ctx, id)
	return func() { f.Close() }, err
}

// lockForkFile takes the lock on the record of a fork. It returns the open file, which holds the
// lock until all its descriptors are closed.
func (b *backend) lockForkFile(ctx context.Context, id snapshot.ForkID) (*os.File, error) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	at := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(h.Sum64() >> 2), Len: 1}
	return b.waitLock(ctx, func(f *os.File) error {
		return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &at)
	})
}

// waitLock calls try on the open lock file repeatedly until try gets its lock. It returns the file, which
// holds the lock until it is closed, or an error when ctx ends.
func (b *backend) waitLock(ctx context.Context, try func(*os.File) error) (*os.File, error) {
	f, err := b.openLock()
	if err != nil {
		return nil, err
	}
	err = retry(ctx, func() (bool, error) {
		err := try(f)
		again := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
		return again, err
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// retry calls try, with growing pauses, until try returns again = false. It returns the last error of try, or
// that of ctx. With it the backend waits for locks and servers.
func retry(ctx context.Context, try func() (again bool, err error)) error {
	return poll.Until(ctx, 100*time.Microsecond, 10*time.Millisecond, func() (bool, error) {
		again, err := try()
		if again {
			err = nil
		}
		return !again, err
	})
}

// create creates the file path with the record of a snapshot or fork, entirely or not at all, also across a
// power cut. The file must not exist.
func (b *backend) create(ctx context.Context, path string, r *record) error {
	if err := fault.Point(ctx, "write the record"); err != nil {
		return err
	}
	next := b.dir + "/tmp/" + uniqueName("record")
	err := r.write(next)
	if notExist(err) {
		if err = b.prepare(); err == nil {
			err = r.write(next)
		}
	}
	if err != nil {
		return err
	}
	if err := vfs.RenameNew(next, path); err != nil {
		_ = os.Remove(next)
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return nil
}

// replace replaces the file path with the record of a fork atomically, also across a power cut. If the fork
// was removed meanwhile, it returns ErrNotExist and does not create it. The caller holds the fork's lock, or
// [backend.lock] exclusively.
func (b *backend) replace(path string, r *record) error {
	next := b.dir + "/tmp/" + uniqueName("record")
	if err := r.write(next); err != nil {
		return err
	}
	err := vfs.Replace(next, path)
	_ = os.Remove(next) // the old record; a sweep removes a leftover
	if err != nil {
		return &fs.PathError{Op: "exchange", Path: path, Err: err}
	}
	return nil
}

// removeRecord removes the file path with the record of the fork id or, without fork, of the snapshot id,
// valid or not. A file without this backend's format mark is ErrDenied; a missing one is no error.
func (b *backend) removeRecord(ctx context.Context, id, path string, fork bool) error {
	if !snapshot.ValidID(id) {
		return nil // no entry of ours can have that name
	}
	r, err := read(path, fork)
	switch {
	case notExist(err):
		return nil
	case errors.Is(kindOf(err), errs.ErrDenied), errors.Is(kindOf(err), errs.ErrNotSupported):
		return because(errs.ErrDenied, path, "not a record of the fusecow backend: "+err.Error())
	case err != nil && !errors.Is(kindOf(err), errs.ErrCorrupt): // it could not be read
		return err
	}
	if err := fault.Point(ctx, "remove the record"); err != nil {
		return err
	}
	if r.State != "" {
		b.markPending()
	}
	if err := os.Remove(path); err != nil && !notExist(err) {
		return err
	}
	return nil
}

// ids returns the sorted ids of the snapshots or forks whose records are in the directory dir.
func ids[T ~string](dir string) ([]T, error) {
	entries, err := os.ReadDir(dir)
	if notExist(err) {
		return nil, nil
	}
	var found []T
	for _, e := range entries {
		if e.Type().IsRegular() && snapshot.ValidID(e.Name()) {
			found = append(found, T(e.Name()))
		}
	}
	return found, err
}

// newLayer creates an empty layer directory for the changes of the fork id, and returns its name. The caller
// holds the lock.
func (b *backend) newLayer(ctx context.Context, id snapshot.ForkID) (string, error) {
	if err := fault.Point(ctx, "make the layer"); err != nil {
		return "", err
	}
	name := uniqueName(string(id) + "-")
	next := b.dir + "/tmp/" + name
	if err := logfile.Make(next); err != nil {
		b.discard(next)
		return "", err
	}
	if err := os.Rename(next, b.layerPath(name)); err != nil {
		b.discard(next)
		return "", err
	}
	return name, nil
}

// discard moves the file or directory at path into the trash, for Sweep to delete. If that fails, a later
// Sweep finds it at path.
func (b *backend) discard(path string) {
	_ = vfs.RenameNew(path, b.dir+"/trash/"+uniqueName(""))
}

// uniqueName returns prefix and a random number: a name for a layer or another file of the backend that no
// other has.
func uniqueName(prefix string) string { return prefix + strconv.FormatUint(rand.Uint64(), 36) }

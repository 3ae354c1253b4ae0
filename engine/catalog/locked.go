package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Locked is a sandbox's record together with the sandbox's lock: no other process changes the sandbox until
// Release. [Catalog.Lock] makes it. If this process dies, the kernel releases the lock.
type Locked struct {
	*Record
	c   *Catalog
	dir *os.File
	// covered is Record.Next when reserved numbers were taken, 0 if none were or the record was saved since.
	covered int
	reserve span // the numbers that are reserved still, as far as this Locked knows
}

// lockTimeout is how long [Catalog.Lock] waits for another command to release a sandbox's lock before it
// returns ErrBusy. Commands hold the lock for seconds at most.
const lockTimeout = time.Minute

// Lock locks a sandbox and reads its record. Errors: ErrNotFound; ErrBusy if another command
// holds the lock for a minute; ErrInterrupted.
func (c *Catalog) Lock(ctx context.Context, name string) (*Locked, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(lockTimeout)
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 5*time.Millisecond) { // most commands hold it for a moment
		h, err := c.TryLock(name)
		if !errors.Is(err, errs.ErrBusy) || time.Now().After(deadline) {
			return h, err
		}
		select {
		case <-ctx.Done():
			return nil, &errs.Error{Op: "locking", Path: name, Kind: errs.ErrInterrupted, Err: ctx.Err()}
		case <-time.After(wait):
		}
	}
}

// TryLock locks a sandbox and reads its record as [Catalog.Lock] does, but returns ErrBusy at once if another
// process holds the lock.
func (c *Catalog) TryLock(name string) (*Locked, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	h, err := c.tryLockNow(name)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, &errs.Error{
			Op: "locking", Path: name, Kind: errs.ErrBusy,
			Err: errors.New("another snapfs command is using the sandbox"),
		}
	}
	return h, err
}

// tryLockNow locks the directory that bears the sandbox's name and reads its record, without waiting. If the
// directory was renamed or removed between opening and locking, it returns an error for the caller to try
// again.
func (c *Catalog) tryLockNow(name string) (*Locked, error) {
	path := c.Path(name)
	dir, err := vfs.OpenAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
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
	return &Locked{Record: r, c: c, dir: dir}, nil
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// Save replaces the sandbox's record in the catalogue by h.Record. It is atomic: a reader sees the old or the
// new one, and an error leaves the old one. Unless the sandbox is ephemeral, the record is on stable storage
// afterwards.
func (h *Locked) Save() error {
	h.covered = 0
	return h.c.write(h.Record, durabilityOf(h.Record))
}

// SaveOrdered does the same as [Locked.Save], but a power loss within the next seconds may leave the record as it was
// before. Cost: half of Save.
func (h *Locked) SaveOrdered() error {
	h.covered = 0
	return h.c.write(h.Record, min(ordered, durabilityOf(h.Record)))
}

// StartSave begins to save the record as it is now, as [Locked.Save] does, while the caller does something that takes
// as long. The caller then calls finish, which waits for that. If the record has changed meanwhile, finish saves it
// once more. Before finish the caller calls no other method that saves.
func (h *Locked) StartSave() (finish func() error) {
	h.covered = 0
	was, err := encode(h.Record)
	saved := make(chan error, 1)
	if err == nil {
		name, to := h.Name, durabilityOf(h.Record)
		go func() { saved <- h.c.put(name, was, to) }()
	} else {
		saved <- fmt.Errorf("writing the record of %s: %w", h.Name, err)
	}
	return func() error {
		err := <-saved
		if now, eerr := encode(h.Record); err != nil || eerr == nil && bytes.Equal(was, now) {
			return err
		}
		return h.Save()
	}
}

// Reload reads the record from the catalogue again, and thereby discards changes that were not saved, such as
// after a failed Save.
func (h *Locked) Reload() error {
	h.covered = 0
	r, err := h.c.Get(h.Name)
	if err == nil {
		h.Record = r
	}
	return err
}

// LockFile returns the open file that holds the sandbox's lock. A child process that inherits it shares the
// lock; see [Catalog.Inherit]. The Locked still owns and closes it.
func (h *Locked) LockFile() *os.File { return h.dir }

// Inherit returns the locked sandbox called name in a process to which the parent passed the lock as open
// file descriptor fd. ErrBusy: fd is not the lock of this sandbox.
func (c *Catalog) Inherit(fd int, name string) (*Locked, error) {
	var ours, its syscall.Stat_t
	err := syscall.Fstat(fd, &ours)
	if err == nil {
		err = syscall.Stat(c.Path(name), &its)
	}
	if err != nil || ours.Dev != its.Dev || ours.Ino != its.Ino {
		return nil, &errs.Error{Op: "locking", Path: name, Kind: errs.ErrBusy, Err: errors.New("the lock was not inherited")}
	}
	syscall.CloseOnExec(fd)
	r, err := c.Get(name)
	if err != nil {
		return nil, err
	}
	return &Locked{Record: r, c: c, dir: os.NewFile(uintptr(fd), c.Path(name))}, nil
}

// dropTimeout is how long [Catalog.Drop] waits for the sandbox's lock before it returns ErrBusy.
const dropTimeout = 10 * time.Second

// Drop removes the directory of a sandbox whose record cannot be read, and thereby frees the name. The trees
// of the sandbox stay where the backends stored them, without a record that refers to them. It waits up to ten
// seconds (dropTimeout) for the sandbox's lock, which a supervisor that is ending still holds. Errors:
// ErrBusy, also if the record can be read once the lock is held, or another directory has the name by then,
// because another command has removed the sandbox or made a new one; ErrNotFound; ErrInterrupted. After any of
// them the sandbox is unchanged.
func (c *Catalog) Drop(ctx context.Context, name string) error {
	dir, err := c.lockDamaged(ctx, name, "removing")
	if err != nil {
		return err
	}
	defer dir.Close()
	path := c.Path(name)
	_, err = c.Get(name)
	switch {
	case err == nil || !sameFile(dir, path):
		return errs.New("removing", name, errs.ErrBusy, "another snapfs command has removed or made the sandbox meanwhile")
	case !errors.Is(err, errs.ErrCorrupt) && !errors.Is(err, errs.ErrNotFound):
		return err
	}
	to := filepath.Join(c.dir, trash, name+"."+NewID())
	err = os.Remove(filepath.Join(path, record))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(path, to)
	}
	if err != nil {
		return fail("removing", name, err)
	}
	return removeAll(to)
}

// lockDamaged locks the directory of the sandbox called name, whose record may be damaged, for the operation op. It
// waits up to ten seconds (dropTimeout). The caller closes the directory, and thereby releases the lock. The directory
// may have lost its name meanwhile. Errors: ErrNotFound, ErrBusy, ErrInterrupted.
func (c *Catalog) lockDamaged(ctx context.Context, name, op string) (*os.File, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	dir, err := vfs.OpenAt(unix.AT_FDCWD, c.Path(name), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fail(op, name, err)
	}
	within, cancel := context.WithTimeout(ctx, dropTimeout)
	defer cancel()
	// The file stays open meanwhile, so that the lock is that of the directory which had the name at first.
	err = poll.Until(within, time.Millisecond, 5*time.Millisecond, func() (bool, error) {
		return syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil, nil
	})
	if err == nil {
		return dir, nil
	}
	dir.Close()
	if ctx.Err() != nil {
		return nil, &errs.Error{Op: op, Path: name, Kind: errs.ErrInterrupted, Err: ctx.Err()}
	}
	return nil, errs.New(op, name, errs.ErrBusy, "another snapfs command is using the sandbox")
}

// Release releases the lock of the sandbox, so that other commands can lock it. It may be called twice.
func (h *Locked) Release() { h.dir.Close() }

// Rename gives the sandbox another name and holds its lock further. The caller then saves the record.
// ErrExists: the name is taken, and the old name stays. If the sandbox is not ready yet, the caller holds an
// [Intent] for the new name.
func (h *Locked) Rename(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	release, err := h.c.Share() // a concurrent listing might see neither name
	if err != nil {
		return err
	}
	defer release()
	if err = h.c.plan.Point("rename the sandbox"); err == nil {
		err = vfs.RenameNew(h.c.Path(h.Name), h.c.Path(name))
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return taken(name)
	case err != nil:
		return fail("renaming "+h.Name+" to", name, err)
	}
	h.Name = name
	return nil
}

// Claimed reports whether a sandbox's name is taken, even if only by a directory without a record, which an
// interrupted removal left.
func (c *Catalog) Claimed(name string) bool {
	_, err := os.Lstat(c.Path(name))
	return CheckName(name) == nil && err == nil
}

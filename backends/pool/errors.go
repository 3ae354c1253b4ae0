//go:build linux

package pool

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func unsupported(why string, hints ...string) error {
	return &errs.Error{Kind: errs.ErrNotSupported, Err: errors.New(why), Hints: hints}
}

func busy(why string, hints ...string) error {
	return &errs.Error{Kind: errs.ErrBusy, Err: errors.New(why), Hints: hints}
}

func needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return &errs.Error{Kind: errs.ErrDenied, Err: errors.New("only root can make and mount a pool"), Hints: []string{
		"sudo snapfs pool …", "btrfs subvolume create work (on a btrfs of your own, where you need no pool)",
	}}
}

// failed wraps err in an [*errs.Error] with the operation op, the id of a snapshot, fork or pool, and the
// path. A nil err stays nil.
func failed(op, id, path string, err error) error {
	if err == nil || errs.HasOp(err) {
		return err
	}
	e := &errs.Error{Op: op, Component: name, Subject: id, Path: path, Kind: errs.KindOf(err), Err: err}
	var p *errs.Error
	switch {
	case errors.Is(err, run.ErrMissing):
		e.Kind, e.Hints = errs.ErrNotSupported, errs.HintsOf(err)
	case errors.As(err, &p):
		e.Kind, e.Hints = p.Kind, p.Hints
	case e.Kind == nil:
		e.Kind = errs.ErrNotSupported
	case errors.Is(e.Kind, errs.ErrNoSpace):
		e.Hints = []string{"snapfs gc", "snapfs pool grow"}
	}
	return e
}

// incomplete is the name prefix of directories of pools that are being made or removed. The identity of the
// working process follows in the name, so that the remains of a killed one are found.
const incomplete = ".new."

// removeIncomplete unmounts and deletes the directories in dir of pools whose making or removal was killed:
// their process no longer runs.
func removeIncomplete(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, incomplete+"*"))
	for _, path := range left {
		if proc.NameRuns(strings.TrimPrefix(filepath.Base(path), incomplete)) {
			continue
		}
		_ = mount.Unmount(filepath.Join(path, "mnt")) // EINVAL if nothing is mounted
		_ = os.RemoveAll(path)                        // otherwise the next command does
	}
}

// lock waits for an exclusive lock of the file path, by which one process at a time changes a pool or a
// workspace on it. unlock or the end of the process releases the lock.
func lock(path string) (unlock func(), err error) { return flock(path, unix.LOCK_EX) }

// tryLock takes the lock of the file path without waiting; unlock or the end of the process releases it.
// unix.EWOULDBLOCK means that another process has the lock.
func tryLock(path string) (unlock func(), err error) {
	return flock(path, unix.LOCK_EX|unix.LOCK_NB)
}

func flock(path string, how int) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := vfs.Flock(f, how); err != nil {
		f.Close()
		return nil, err
	}
	return func() { vfs.Unlock(f) }, nil
}

// replace replaces the content of the file path, such as the description of a pool or a workspace, by text,
// atomically and on stable storage.
func replace(path string, text []byte) error {
	tmp := path + incomplete + proc.Name()
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // the first error is reported
		return err
	}
	return vfs.SyncDir(filepath.Dir(path))
}

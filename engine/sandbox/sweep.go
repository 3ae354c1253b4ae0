package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
)

// SweepLock takes the lock that allows only one garbage collection at a time, and returns nil if another
// process has it. Closing the file, which the caller does, releases it.
func (sb *Store) SweepLock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(sb.cat.Dir(), "sweeping"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errs.With("collecting", sb.cat.Dir(), err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}

// SweepLater starts a garbage collection, which frees the disk space of removed trees, in the background. If
// the Store has no command for that, it collects now.
func (sb *Store) SweepLater(ctx context.Context) error {
	if err := fault.Point(ctx, "start to clean up"); err != nil {
		return errs.With("starting to clean up", "", err, "snapfs gc")
	}
	if len(sb.sweeper) == 0 {
		if err := sb.collect(context.WithoutCancel(ctx)); err != nil {
			sb.notice("not everything was cleaned up: " + err.Error())
		}
		return nil
	}
	args := append(append([]string{}, sb.sweeper...), sb.cat.Dir())
	if err := sb.startSweep(args); err != nil {
		return errs.With("starting to clean up", "", err, "snapfs gc")
	}
	return nil
}

// WithRepair adds a hint to err, the error of a backend that found a damaged record of a snapshot or fork: the command
// that repairs the sandbox to which the damaged record belongs. records are all sandboxes.
func WithRepair(err error, records []*catalog.Record) error {
	var damaged *errs.Error
	if !errors.As(err, &damaged) || !errors.Is(err, errs.ErrCorrupt) {
		return err
	}
	id := snapshot.ID(filepath.Base(damaged.Path))
	i := slices.IndexFunc(records, func(r *catalog.Record) bool { return r.Owns(id) })
	if i < 0 {
		return err
	}
	return &errs.Error{Op: "cleaning up", Subject: records[i].Name, Kind: errs.ErrCorrupt, Err: err, Hints: []string{"snapfs doctor " + records[i].Name + " --repair"}}
}

// Stock makes one prefork, a fork made in advance, of each of the bases newest of b, so that the next command
// starts faster. It does nothing if b is no [snapshot.Preforker].
func Stock(ctx context.Context, b snapshot.Backend, newest []snapshot.ID) (err error) {
	s, ok := b.(snapshot.Preforker)
	if !ok {
		return nil
	}
	for _, id := range newest {
		if perr := s.Prefork(ctx, id, 1); !errors.Is(perr, errs.ErrNotFound) { // else it was removed meanwhile
			err = errors.Join(err, perr)
		}
	}
	return err
}

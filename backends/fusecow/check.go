//go:build linux

package fusecow

import (
	"context"
	"errors"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"golang.org/x/sys/unix"
)

var _ snapshot.Checker = (*backend)(nil)

// Check looks for damage in the layers, the directories with the changed files, of a fork, with
// [layer.Check], for [snapshot.Checker]. With repair it repairs the fork's own layer only: those below belong
// to snapshots.
func (b *backend) Check(ctx context.Context, fork snapshot.ForkID, repair bool) ([]snapshot.Problem, error) {
	found, err := b.check(ctx, fork, repair)
	return found, fail("checking", string(fork), err)
}

func (b *backend) check(ctx context.Context, id snapshot.ForkID, repair bool) ([]snapshot.Problem, error) {
	if !snapshot.ValidID(string(id)) {
		return nil, because(errs.ErrNotFound, "", "invalid id")
	}
	r, err := read(b.forkPath(id), true)
	if err != nil {
		return nil, err
	}
	unlock, err := b.lockFork(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if r, err = read(b.forkPath(id), true); err != nil {
		return nil, err
	}
	if err := b.waitUnserved(ctx, r.upper()); err != nil {
		return nil, err
	}
	o, err := b.options(&r)
	if err != nil {
		return nil, err
	}
	all, err := layer.Check(o, repair)
	var found []snapshot.Problem
	for _, p := range all {
		found = append(found, snapshot.Problem{Where: p.Layer, What: p.What, Mended: p.Mended})
	}
	if err == nil && repair && len(found) > 0 && r.Limit != nil {
		err = b.chargeLayers(&r, anyLayer)
	}
	return found, err
}

// waitUnserved waits up to two seconds until no process has the layer called name, a directory in layers/,
// mounted, so that it can be checked. After that it returns ErrBusy.
func (b *backend) waitUnserved(ctx context.Context, name string) error {
	const patience = 2 * time.Second // the processes in the sandbox were stopped before
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := retry(within, func() (again bool, err error) {
		_, release, err := logfile.TryLock(b.layerPath(name))
		if err == nil {
			release()
		}
		return errors.Is(err, unix.EBUSY), err
	})
	switch {
	case notExist(err):
		return nil
	case err != nil && ctx.Err() == nil && within.Err() != nil:
		return because(errs.ErrBusy, b.layerPath(name), "a process has the layer mounted")
	}
	return err
}

//go:build linux

package fusecow

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
)

var _ snapshot.Detacher = (*backend)(nil)

// Borrowed returns the files that a fork changed but whose content is still read from the real tree under
// another name, for [snapshot.Detacher]. It includes files that were changed in part, even under their own
// names, and files that have lost one of several names. There are none if the base is frozen.
func (b *backend) Borrowed(ctx context.Context, fork snapshot.ForkID) (all []snapshot.Borrowed, err error) {
	list, err := b.borrowed(ctx, fork)
	for _, one := range list {
		all = append(all, snapshot.Borrowed{Path: one.Path, From: one.From, Tree: one.Dir})
	}
	return all, fail("finding borrowed files of", string(fork), err)
}

func (b *backend) borrowed(ctx context.Context, fork snapshot.ForkID) ([]layer.Borrowed, error) {
	r, err := b.flushed(ctx, fork)
	if err != nil || r.State != "" {
		return nil, err
	}
	o, err := b.options(&r)
	if err != nil {
		return nil, err
	}
	return layer.FindBorrowed(o)
}

// Detach copies the content that the given files of a fork still read from the real tree into the fork's
// layer, for [snapshot.Detacher]; see [layer.FS.Detach]. It opens the layers itself and needs no mount.
func (b *backend) Detach(ctx context.Context, fork snapshot.ForkID, what []snapshot.Borrowed, _ func(do func(root int) error) error) error {
	paths := map[string]bool{}
	for _, one := range what {
		paths[one.From] = true
	}
	return fail("copying up renamed files of", string(fork), b.detach(ctx, fork, paths))
}

func (b *backend) detach(ctx context.Context, fork snapshot.ForkID, paths map[string]bool) error {
	unlockFork, err := b.lockFork(ctx, fork)
	if err != nil {
		return err
	}
	defer unlockFork()
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := b.fork(fork)
	if err != nil {
		return err
	}
	o, err := b.options(&r)
	if err != nil {
		return err
	}
	var f *layer.FS
	err = b.retryBusy(ctx, b.layerPath(r.upper()), func() (again bool, err error) { // its server may be about to exit
		f, err = layer.Open(o)
		return errors.Is(err, unix.EBUSY), err
	})
	if err != nil {
		return err
	}
	if err = b.setQuota(f, &r); err == nil {
		err = fault.Point(ctx, "copy up")
	}
	if err == nil {
		err = f.Detach(ctx, paths)
	}
	if err == nil {
		err = fault.Point(ctx, "commit the log")
	}
	return errors.Join(err, f.Close())
}

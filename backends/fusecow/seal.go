//go:build linux

package fusecow

import (
	"context"
	"errors"
	"os"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"golang.org/x/sys/unix"
)

// Seal makes the snapshot id of a fork: it puts a new layer on the fork for further changes, and the old one
// becomes the snapshot's topmost layer. If the fork is in use, its server switches layers. If a later step
// fails, the fork has one more layer with the same content. Cost: constant, plus recovery if the fork's
// server was killed. Every few seals, Seal first merges layers: see shorten.
func (b *backend) Seal(ctx context.Context, fork snapshot.ForkID, id snapshot.ID, use snapshot.Use) (snapshot.Snapshot, error) {
	s, err := b.sealed(ctx, fork, id, use)
	if err != nil {
		return snapshot.Snapshot{}, fail("sealing", string(fork), err)
	}
	sealed, err := b.snapshotOf(id, &s)
	return sealed, fail("sealing", string(fork), err)
}

func (b *backend) sealed(ctx context.Context, fork snapshot.ForkID, id snapshot.ID, use snapshot.Use) (s record, err error) {
	if err := checkStart(ctx, string(id)); err != nil {
		return s, err
	}
	if _, err := b.fork(fork); err != nil {
		return s, err
	}
	if _, err := os.Lstat(b.snapshotPath(id)); err == nil {
		return s, because(errs.ErrExists, b.snapshotPath(id), "a snapshot of that name exists")
	}
	lock, err := b.lockForkFile(ctx, fork)
	if err != nil {
		return s, err
	}
	defer lock.Close()
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return s, err
	}
	defer unlock()
	r, err := b.fork(fork)
	if err != nil {
		return s, err
	}
	if err := b.shorten(ctx, fork, &r, use); err != nil {
		return s, err
	}
	s = record{Tree: r.Tree, State: r.State, Taken: now(), Layers: r.Layers, Indexes: r.Indexes}
	next, err := b.newLayer(ctx, fork)
	if err != nil {
		return s, err
	}
	err = fault.Point(ctx, "switch to the new layer")
	if err == nil {
		n := r.above(next)
		err = b.switchFork(ctx, fork, &r, &n, request{Freeze: next, file: lock}, use)
	}
	if err != nil {
		b.discard(b.layerPath(next))
		return s, err
	}
	if err := b.create(ctx, b.snapshotPath(id), &s); err != nil {
		return s, err
	}
	err = fault.Point(ctx, "make it the base")
	if err == nil {
		r = r.above(next)
		r.Base, r.Taken = string(id), s.Taken
		err = b.replace(b.forkPath(fork), &r)
	}
	if err != nil {
		return s, errors.Join(err, os.Remove(b.snapshotPath(id)))
	}
	return s, nil
}

// switchFork replaces the record r of a fork by next, which has other layers. If a process serves the fork,
// switchFork does not write the record but requests by q that the server does.
func (b *backend) switchFork(ctx context.Context, fork snapshot.ForkID, r, next *record, q request, use snapshot.Use) error {
	return b.retryBusy(ctx, b.layerPath(r.upper()), func() (again bool, err error) {
		clean, release, err := logfile.TryLock(b.layerPath(r.upper()))
		switch {
		case err == nil && clean:
			defer release()
			return false, b.replace(b.forkPath(fork), next)
		case err == nil:
			release()
			err = b.recover(r)
			return err == nil || errors.Is(err, unix.EBUSY), err
		case !errors.Is(err, unix.EBUSY):
			return false, err
		case use == snapshot.InUse:
			_, err = b.requestLayer(r.upper(), q)
		}
		return errors.Is(err, unix.EBUSY) || errors.Is(err, errNotServed), err
	})
}

var _ snapshot.Returner = (*backend)(nil)

// Return takes a fork back to the state of the snapshot to, for [snapshot.Returner]. Cost: reading the logs
// of the snapshot's layers, and for a fork in use a look at each inode that the kernel knows.
func (b *backend) Return(ctx context.Context, fork snapshot.ForkID, to snapshot.ID, use snapshot.Use) error {
	return fail("returning", string(fork), b.returnFork(ctx, fork, to, use))
}

func (b *backend) returnFork(ctx context.Context, fork snapshot.ForkID, to snapshot.ID, use snapshot.Use) error {
	lock, err := b.lockForkFile(ctx, fork)
	if err != nil {
		return err
	}
	defer lock.Close()
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := b.fork(fork)
	if err != nil {
		return err
	}
	s, err := b.snapshot(to)
	if err != nil {
		return err
	}
	if s.Tree != r.Tree || s.State != r.State {
		return because(errs.ErrNotSupported, b.snapshotPath(to), "the snapshot has another base than the fork", "snapfs stop …")
	}
	own, err := b.newLayer(ctx, fork)
	if err != nil {
		return err
	}
	next := s.above(own)
	next.Base, next.Own, next.Limit = string(to), len(s.Layers), r.Limit
	err = fault.Point(ctx, "return to the snapshot")
	if err == nil {
		err = b.switchFork(ctx, fork, &r, &next, request{RollBack: &next, file: lock}, use)
	}
	now, rerr := b.fork(fork)
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	dropped, current := r, next
	if now.upper() != own { // nothing has changed
		dropped, current = next, r
	}
	b.discard(b.layerPath(dropped.upper()))
	b.unchargeLayers(&dropped, &current)
	return err
}

// Base returns the snapshot on which a fork is based, after waiting for a running Return of that fork.
func (b *backend) Base(ctx context.Context, fork snapshot.ForkID) (snapshot.ID, error) {
	unlock, err := b.lockFork(ctx, fork)
	if err != nil {
		return "", fail("looking up", string(fork), err)
	}
	defer unlock()
	r, err := b.fork(fork)
	return snapshot.ID(r.Base), fail("looking up", string(fork), err)
}

//go:build linux

package fusecow

import (
	"context"
	"errors"
	"iter"
	"strconv"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

var (
	_ snapshot.ChangeLister = (*backend)(nil)
	_ snapshot.Syncer       = (*backend)(nil)
)

// errStop ends [layer.Compare], which searches for changed paths, after the caller has stopped iterating over
// them. No caller sees it.
var errStop = errors.New("enough")

// ListChanges implements [snapshot.ChangeLister]: it yields the paths recorded in the logs of layers that
// only one of base and fork has. If the fork is mounted, the process that serves it commits its log first.
// Cost: in proportion to the changes since the capture.
func (b *backend) ListChanges(ctx context.Context, base snapshot.ID, fork snapshot.ForkID) iter.Seq2[snapshot.Candidate, error] {
	return b.listBetween(base, string(fork), func() (record, error) { return b.flushed(ctx, fork) })
}

// ListChangesBetween yields the paths at which the snapshots x and y may differ, for [snapshot.ChangeLister].
func (b *backend) ListChangesBetween(_ context.Context, x, y snapshot.ID) iter.Seq2[snapshot.Candidate, error] {
	return b.listBetween(x, string(y), func() (record, error) { return b.snapshot(y) })
}

// listBetween yields the paths at which the snapshot base may differ from another snapshot or fork: id, whose
// record open returns.
func (b *backend) listBetween(base snapshot.ID, id string, open func() (record, error)) iter.Seq2[snapshot.Candidate, error] {
	return func(yield func(snapshot.Candidate, error) bool) {
		from, err := b.snapshot(base)
		if err != nil {
			yield(snapshot.Candidate{}, fail("comparing", string(base), err))
			return
		}
		to, err := open()
		if err == nil {
			err = b.compare(&from, &to, yield)
		}
		if err != nil {
			yield(snapshot.Candidate{}, fail("comparing", id, err))
		}
	}
}

// flushed returns the record of a fork after the process that serves it, if any, has written all changes to
// the log.
func (b *backend) flushed(ctx context.Context, id snapshot.ForkID) (r record, err error) {
	err = b.retryBusy(ctx, b.forkPath(id), func() (again bool, err error) {
		if r, err = b.fork(id); err == nil {
			_, err = b.requestLayer(r.upper(), request{Flush: true})
		}
		if errors.Is(err, errNotServed) {
			var release func()
			if _, release, err = logfile.TryLock(b.layerPath(r.upper())); err == nil {
				release()
			}
		}
		return errors.Is(err, unix.EBUSY), err
	})
	return r, err
}

func (b *backend) compare(x, y *record, yield func(snapshot.Candidate, error) bool) error {
	if x.Tree != y.Tree {
		return because(errs.ErrNotSupported, y.Tree, "this is not the tree "+strconv.Quote(x.Tree))
	}
	if x.State != y.State {
		return because(errs.ErrNotSupported, y.Tree, "both are frozen from different states of the tree")
	}
	from, err := b.options(x)
	if err != nil {
		return err
	}
	to, err := b.options(y)
	if err != nil {
		return err
	}
	inX, inY := b.commonLayers(x, y)
	err = layer.Compare(from, to, inX, inY, func(path string, tree bool) error {
		if !yield(snapshot.Candidate{Path: path, Tree: tree, Named: !tree}, nil) {
			return errStop
		}
		return nil
	})
	if err == nil && len(from.Layers) == 0 {
		err = listRenamed(to, yield)
	}
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// listRenamed yields the directories of the lower that the layers of o show under other names. The other state of
// the comparison must have no layers: it shows these directories under their names in the lower, so that they are the
// renamed ones.
func listRenamed(o layer.Options, yield func(snapshot.Candidate, error) bool) error {
	list, err := layer.FindBorrowed(o)
	for _, l := range list {
		if l.Dir && !yield(snapshot.Candidate{Path: l.Path, Tree: true, RenamedFrom: l.From}, nil) {
			return errStop
		}
	}
	return err
}

// Usage returns the bytes of the fork's own layer, without layers that it has sealed, for
// [snapshot.ChangeLister]. It includes files that crash recovery set aside, which count for no limit. Cost:
// reading the log, after a flush or a recovery.
func (b *backend) Usage(ctx context.Context, fork snapshot.ForkID) (snapshot.Bytes, error) {
	r, err := b.flushed(ctx, fork)
	var u quota.Usage
	if err == nil {
		u, err = b.logUsage(&r)
	}
	var aside int64
	if err == nil {
		aside, err = logfile.AsideBytes(b.layerPath(r.upper()))
	}
	return snapshot.Bytes(u.Bytes + aside), fail("measuring", string(fork), err)
}

func (b *backend) logUsage(r *record) (quota.Usage, error) {
	clean, release, err := logfile.TryLock(b.layerPath(r.upper()))
	if err == nil {
		release()
		if !clean {
			err = b.recover(r)
		}
	}
	if err != nil && !errors.Is(err, unix.EBUSY) { // it is served
		return quota.Usage{}, err
	}
	return quota.OfLayer(b.layerPath(r.upper()), r.index(len(r.Layers)-1))
}

// Sync puts a fork's changes on stable storage. It waits until no process serves the fork, recovers the layer
// if that process was killed, and syncs the filesystem of the layers. It implements [snapshot.Syncer] with
// one exception: after a power cut, content that was never synced may be shorter than before. ErrBusy means
// that the fork is still served.
func (b *backend) Sync(ctx context.Context, fork snapshot.ForkID) error {
	return fail("syncing", string(fork), b.syncFork(ctx, fork))
}

func (b *backend) syncFork(ctx context.Context, fork snapshot.ForkID) error {
	r, err := b.fork(fork)
	if err != nil {
		return err
	}
	clean, release, err := b.lockLayer(ctx, r.upper())
	if err != nil {
		return err
	}
	release()
	if !clean {
		if err := b.recover(&r); err != nil {
			return err
		}
	}
	if err := fault.Point(ctx, "write out"); err != nil {
		return err
	}
	dir, err := vfs.OpenDir(unix.AT_FDCWD, b.layerPath(r.upper()))
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Syncfs(int(dir.Fd()))
}

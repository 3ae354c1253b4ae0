//go:build linux

package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/backends/btrfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

const name = "pool"

// Driver is the driver that stores snapshots of trees that were imported into a pool (a btrfs in a file), or
// moved onto one (adopted). The pools are in the driver's own directory. It must be before btrfs in the list
// of drivers, because an adopted tree is on btrfs too.
var Driver = snapshot.Driver{Name: name, Automatic: true, Open: openTree}

func openTree(ctx context.Context, place snapshot.Place) (snapshot.Backend, error) {
	pools, err := List(place.Dir)
	if err != nil {
		return nil, err
	}
	tree := place.Tree.Path
	for _, n := range pools {
		p := &Pool{Name: n, Dir: filepath.Join(place.Dir, n)}
		r, err := p.record(tree)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return nil, failed("opening", n, tree, err)
		}
		if err := p.ensure(ctx); err != nil {
			return nil, failed("opening", n, tree, err)
		}
		b, err := btrfs.OpenFrom(ctx, name, place, p.tree(tree))
		if err != nil {
			return nil, err
		}
		b.Own()
		return &backend{b, p, r.State == imported}, nil
	}
	return nil, failed("opening", "", tree, unsupported("no pool has this tree", "snapfs pool import "+errs.Quoted(tree)))
}

// A backend is the backend of package btrfs, used on the pool's copy of a tree. It updates the copy before a
// capture, which takes a walk of the tree's directories, unless the tree itself was moved onto the pool
// (adopted).
type backend struct {
	*btrfs.Backend
	pool *Pool
	// walks is set if the tree is not adopted, so that captures first walk it to update the
	// copy.
	walks bool
}

// Facts returns the properties of the btrfs backend, adjusted for the walk of the tree and the copy of its
// changes that a pool needs before each capture.
func (b *backend) Facts() snapshot.Facts {
	f := b.Backend.Facts()
	f.CopiesWhole, f.RealInodes = b.walks, !b.walks
	return f
}

// Capture makes the snapshot id of a tree, for [snapshot.Backend]: it updates the pool's copy of the tree and
// snapshots that. The snapshot stands for the instant at which Capture began.
func (b *backend) Capture(ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
	var s snapshot.Snapshot
	err := b.withCurrentCopy(ctx, tree, func(began time.Time) (err error) {
		s, err = b.CaptureAsOf(ctx, tree, id, began)
		return err
	})
	return s, err
}

// Clone makes a snapshot and a fork of the tree in one step, for [snapshot.Cloner]: it updates the pool's
// copy and clones that.
func (b *backend) Clone(ctx context.Context, tree snapshot.Tree, id snapshot.ID, fork snapshot.ForkID) (snapshot.Snapshot, snapshot.Fork, error) {
	var s snapshot.Snapshot
	var f snapshot.Fork
	if err := b.pool.Growing(ctx, fork); err != nil {
		return s, f, err
	}
	err := b.withCurrentCopy(ctx, tree, func(began time.Time) (err error) {
		s, f, err = b.CloneAsOf(ctx, tree, id, fork, began)
		return err
	})
	return s, f, err
}

// Fork makes the fork id of the snapshot from, for [snapshot.Backend], after checking that the host's disk
// has space for a new fork.
func (b *backend) Fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
	if err := b.pool.Growing(ctx, id); err != nil {
		return snapshot.Fork{}, err
	}
	return b.Backend.Fork(ctx, from, id)
}

// Maintain limits the pool's forks together to the space that the host's disk has, for [snapshot.Maintainer].
func (b *backend) Maintain(ctx context.Context) error { return b.pool.Maintain(ctx) }

// withCurrentCopy updates the pool's copy of the tree, unless the tree itself is on the pool (adopted), and
// calls do while it holds the tree's lock. began is the time at which the update began, for which the copy
// stands.
func (b *backend) withCurrentCopy(ctx context.Context, tree snapshot.Tree, do func(began time.Time) error) error {
	began := vfs.Now()
	unlock, err := b.pool.lockTree(tree.Path)
	if err != nil {
		return failed("capturing", "", tree.Path, err)
	}
	defer unlock()
	err = checkTree(tree.Path)
	if err == nil {
		_, err = b.pool.record(tree.Path)
	}
	if err != nil {
		return failed("capturing", "", tree.Path, err)
	}
	if _, err := b.pool.update(ctx, tree.Path, nil); err != nil {
		return failed("capturing", "", tree.Path, err)
	}
	return do(began)
}

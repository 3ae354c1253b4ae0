//go:build linux

package overlay

import (
	"context"
	"iter"
	"strconv"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// Touched yields the content of the fork's upper layer, and of its layers above those of base.
// Cost: in proportion to their entries.
func (b *backend) Touched(_ context.Context, base snapshot.ID, fork snapshot.ForkID) iter.Seq2[snapshot.Touch, error] {
	return func(yield func(snapshot.Touch, error) bool) {
		from, err := find(string(base), b.store.snapshotPath(base))
		if err != nil {
			yield(snapshot.Touch{}, fail("comparing", string(base), err))
			return
		}
		to, err := find(string(fork), b.store.forkPath(fork))
		if err == nil {
			err = b.touched(&from, &to, yield)
		}
		if err != nil {
			yield(snapshot.Touch{}, fail("comparing", string(fork), err))
		}
	}
}

// TouchedBetween does the same for two snapshots.
func (b *backend) TouchedBetween(_ context.Context, x, y snapshot.ID) iter.Seq2[snapshot.Touch, error] {
	return func(yield func(snapshot.Touch, error) bool) {
		from, err := find(string(x), b.store.snapshotPath(x))
		if err != nil {
			yield(snapshot.Touch{}, fail("comparing", string(x), err))
			return
		}
		to, err := find(string(y), b.store.snapshotPath(y))
		if err == nil {
			err = b.touched(&from, &to, yield)
		}
		if err != nil {
			yield(snapshot.Touch{}, fail("comparing", string(y), err))
		}
	}
}

// touched compares two states of one tree.
func (b *backend) touched(x, y *record, yield func(snapshot.Touch, error) bool) error {
	if x.tree != y.tree {
		return because(errs.ErrNotSupported, y.tree, "not the tree "+strconv.Quote(x.tree)+" of the other state")
	}
	return listChanges(b.mode(), b.treesOf(x), b.treesOf(y), y.tree, yield)
}

// treesOf returns the trees of a record's layers, topmost first.
func (b *backend) treesOf(r *record) []string {
	var trees []string
	if r.fork {
		trees = append(trees, b.store.treePath(r.upper))
	}
	for _, layer := range b.store.shorten(r.layers) {
		trees = append(trees, b.store.treePath(layer))
	}
	return trees
}

func (b *backend) mode() mode {
	return mode{prefix: b.store.attr(""), unprivileged: b.store.userXattr}
}

// Borrowed lists directories and files with a redirect. A file has one if it was renamed with metacopy,
// that is if only its metadata was copied up.
func (b *backend) Borrowed(ctx context.Context, fork snapshot.ForkID) ([]snapshot.Borrowed, error) {
	r, err := find(string(fork), b.store.forkPath(fork))
	var list []snapshot.Borrowed
	if err == nil && !b.store.userXattr { // an ordinary user's layers have no redirects
		list, err = findRedirects(ctx, b.mode(), b.treesOf(&r))
	}
	return list, fail("looking through", string(fork), err)
}

// Raise makes the kernel copy the entries up, through a mount of the fork. After the unmount it removes
// the redirects of directories itself. In this order, a kill at any point leaves the fork with the
// content it showed.
func (b *backend) Raise(ctx context.Context, fork snapshot.ForkID, what []snapshot.Borrowed, mounted func(do func(root int) error) error) error {
	r, err := find(string(fork), b.store.forkPath(fork))
	if err == nil {
		err = detach(ctx, b.mode(), b.store.treePath(r.upper), r.tree, what, mounted)
	}
	return fail("copying up renamed entries in", string(fork), err)
}

var _ snapshot.Raiser = (*backend)(nil)

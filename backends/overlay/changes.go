//go:build linux

package overlay

import (
	"context"
	"iter"
	"slices"
	"strconv"

	"github.com/snapfs/snapfs/backends/overlay/diff"
	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// ListChanges yields the paths at which a fork may differ from its snapshot base, for
// [snapshot.ChangeLister]: the entries of the fork's upper layer, and of its layers above those of base.
// Cost: in proportion to their entries; three system calls for a fork that has not changed since the last call.
func (b *backend) ListChanges(_ context.Context, base snapshot.ID, fork snapshot.ForkID) iter.Seq2[snapshot.Candidate, error] {
	path := b.store.ForkPath(fork)
	known := forkBase{path, string(base)}
	return func(yield func(snapshot.Candidate, error) bool) {
		if !b.unchanged.has(known) {
			b.listBetween(base, string(fork), path, yield)
		}
	}
}

// ListChangesBetween yields the paths at which the snapshots x and y may differ, for [snapshot.ChangeLister].
func (b *backend) ListChangesBetween(_ context.Context, x, y snapshot.ID) iter.Seq2[snapshot.Candidate, error] {
	return func(yield func(snapshot.Candidate, error) bool) {
		b.listBetween(x, string(y), b.store.SnapshotPath(y), yield)
	}
}

// listBetween yields the paths at which the snapshot base may differ from another snapshot or fork, id. path
// is the file with the record of id, which lists its layers.
func (b *backend) listBetween(base snapshot.ID, id, path string, yield func(snapshot.Candidate, error) bool) {
	from, err := store.Find(string(base), b.store.SnapshotPath(base))
	if err != nil {
		yield(snapshot.Candidate{}, fail("comparing", string(base), err))
		return
	}
	record, settled := statSettled(path) // before the record is read
	to, err := store.Find(id, path)
	if err != nil {
		yield(snapshot.Candidate{}, fail("comparing", id, err))
		return
	}
	upper, seen, changed := b.store.TreePath(to.Upper), []fileState(nil), false
	if settled = settled && to.Fork; settled {
		seen, settled = statSettled(upper, diff.Topmost(b.treesOf(&from), to.Tree))
	}
	err = b.listChanges(&from, &to, func(c snapshot.Candidate, err error) bool {
		changed = true
		return yield(c, err)
	})
	if err != nil {
		yield(snapshot.Candidate{}, fail("comparing", id, err))
		return
	}
	if settled && !changed {
		b.unchanged.add(forkBase{path, string(base)}, append(record, seen...), upper)
	}
}

// listChanges yields the paths at which two states of one tree may differ, from the layers that their records
// x and y list. A record is the text file that describes a snapshot or fork.
func (b *backend) listChanges(x, y *store.Record, yield func(snapshot.Candidate, error) bool) error {
	if x.Tree != y.Tree {
		return store.Refuse(errs.ErrNotSupported, y.Tree, "not the tree "+strconv.Quote(x.Tree)+" of the other state")
	}
	return diff.ListChanges(b.mode(), b.treesOf(x), b.treesOf(y), y.Tree, yield)
}

// ChangedSinceSeal compares the fork's upper layer with the copy of it that the snapshot base has, for
// [snapshot.SealComparer]. If base is no copy, because nothing used the fork when it was sealed, the fork has had an
// empty upper layer since then, and each file in it is a change.
func (b *backend) ChangedSinceSeal(ctx context.Context, base snapshot.ID, fork snapshot.ForkID) (changed, known bool) {
	s, err := store.Find(string(base), b.store.SnapshotPath(base))
	if err != nil || len(s.Layers) == 0 {
		return false, false
	}
	f, err := store.Find(string(fork), b.store.ForkPath(fork))
	if err != nil || f.Tree != s.Tree {
		return false, false
	}
	upper := b.store.TreePath(f.Upper)
	if slices.Equal(s.Layers, f.Layers) {
		found := diff.HasFiles(upper)
		return found, found // directories may be there for a mount only
	}
	if !slices.Equal(s.Layers[1:], b.store.Shorten(f.Layers)) {
		return false, false
	}
	same, known := b.mode().Same(ctx, b.store.TreePath(s.Layers[0]), upper)
	return !same, known
}

// treesOf returns the directories with the content of the layers that the record r of a snapshot or fork
// lists, topmost first.
func (b *backend) treesOf(r *store.Record) []string {
	var trees []string
	if r.Fork {
		trees = append(trees, b.store.TreePath(r.Upper))
	}
	for _, layer := range b.store.Shorten(r.Layers) {
		trees = append(trees, b.store.TreePath(layer))
	}
	return trees
}

func (b *backend) mode() diff.Mode {
	return diff.Mode{Prefix: b.store.AttrPrefix(), Unprivileged: b.store.UserXattr}
}

// Borrowed lists the entries of a fork that read their content from the real tree under another name, for
// [snapshot.Detacher]: directories and files with overlayfs's redirect attribute. A file has one if it was
// renamed with only its metadata copied up.
func (b *backend) Borrowed(ctx context.Context, fork snapshot.ForkID) ([]snapshot.Borrowed, error) {
	r, err := store.Find(string(fork), b.store.ForkPath(fork))
	var list []snapshot.Borrowed
	if err == nil && !b.store.UserXattr { // an ordinary user's layers have no redirects
		list, err = diff.FindRedirects(ctx, b.mode(), b.treesOf(&r))
	}
	return list, fail("looking through", string(fork), err)
}

// Detach copies into a fork's layer the content that the entries in what still read from the real tree, for
// [snapshot.Detacher]. In a mount of the fork, which mounted makes, it has the kernel copy the entries up,
// and after the unmount it removes the redirects of directories. In this order, a kill at any point leaves
// the fork with the content it showed.
func (b *backend) Detach(ctx context.Context, fork snapshot.ForkID, what []snapshot.Borrowed, mounted func(do func(root int) error) error) error {
	r, err := store.Find(string(fork), b.store.ForkPath(fork))
	if err == nil {
		err = diff.Detach(ctx, b.mode(), b.store.TreePath(r.Upper), r.Tree, what, mounted)
	}
	return fail("copying up renamed entries in", string(fork), err)
}

var _ interface {
	snapshot.Detacher
	snapshot.SealComparer
} = (*backend)(nil)

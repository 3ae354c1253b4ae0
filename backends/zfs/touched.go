//go:build linux

package zfs

import (
	"context"
	"errors"
	"iter"
	"path"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/zfs"
)

// Touched keeps the contract of [snapshot.Toucher]: the kernel tells which objects have been written,
// and their names are found by reading directories. It writes out what is buffered for the fork first.
// Cost: a transaction group, a look at each name of one tree, and at those of the other in directories that have changed.
func (b *Backend) Touched(ctx context.Context, base snapshot.ID, fork snapshot.ForkID) iter.Seq2[snapshot.Touch, error] {
	return b.compare(string(fork), func(r room, emit func(snapshot.Touch) bool) error {
		x, err := r.side(snapshots, string(base))
		if err != nil {
			return err
		}
		y, err := r.side(forks, string(fork))
		if err != nil {
			return err
		}
		return between(ctx, x, y, emit)
	})
}

// TouchedBetween keeps the contract of [snapshot.PairToucher]. ErrNotSupported: one is
// not older than the other in one line, or the fork that the younger was sealed from
// has been removed.
func (b *Backend) TouchedBetween(ctx context.Context, s, t snapshot.ID) iter.Seq2[snapshot.Touch, error] {
	return b.compare(string(t), func(r room, emit func(snapshot.Touch) bool) error {
		x, err := r.side(snapshots, string(s))
		if err != nil {
			return err
		}
		y, err := r.side(snapshots, string(t))
		if err != nil {
			return err
		}
		if y.mark.taken.Before(x.mark.taken) {
			x, y = y, x
		}
		return between(ctx, x, y, emit)
	})
}

// Drifted keeps the contract of [snapshot.Drifter], as Touched does.
func (b *Backend) Drifted(ctx context.Context, id snapshot.ID) iter.Seq2[snapshot.Touch, error] {
	return b.compare(string(id), func(r room, emit func(snapshot.Touch) bool) error {
		x, err := r.side(snapshots, string(id))
		if err != nil {
			return err
		}
		src, err := findSource(x.mark.tree)
		if err != nil {
			return absent(err)
		}
		if src != (source{x.mark.source, x.mark.within}) || isFork(x.mark.dataset) {
			return noDiff("the tree is not on the dataset that was captured")
		}
		y := side{mark: x.mark, tree: x.mark.tree}
		y.mark.dataset = src.dataset
		return between(ctx, x, y, emit)
	})
}

func isFork(dataset string) bool { return strings.Contains(dataset, "/"+homeName+"/") }

func noDiff(why string) error { return &problem{kind: errs.ErrNotSupported, why: why} }

func (b *Backend) compare(id string, with func(room, func(snapshot.Touch) bool) error) iter.Seq2[snapshot.Touch, error] {
	return func(yield func(snapshot.Touch, error) bool) {
		r, err := b.enter()
		if err != nil {
			yield(snapshot.Touch{}, fail("comparing", id, absent(err)))
			return
		}
		defer r.Close()
		if err := with(r, func(t snapshot.Touch) bool { return yield(t, nil) }); err != nil {
			yield(snapshot.Touch{}, fail("comparing", id, err))
		}
	}
}

// A side is one of the two trees that are compared, mounted.
type side struct {
	mark mark
	tree string // where the tree is
}

func (r room) side(kind, id string) (side, error) {
	m, err := r.find(kind, id)
	if err == nil {
		err = r.reach(m)
	}
	return side{m, path.Join(r.Name(), kind, id, treeName, m.within)}, err
}

// between tells where the snapshot x and y, which is younger, may differ. What the kernel refuses, for
// whatever reason, and what cannot be read is ErrNotSupported: who walks both trees finds out.
func between(ctx context.Context, x, y side, emit func(snapshot.Touch) bool) error {
	if x.mark.dataset == y.mark.dataset {
		return nil
	}
	if !isSnapshot(y.mark.dataset) {
		if err := flush(y.tree); err != nil {
			return absent(err)
		}
	}
	changed, err := changedObjects(x.mark.dataset, y.mark.dataset)
	if err != nil {
		return noDiff("the kernel does not tell what has changed: " + err.Error())
	}
	err = findNames(ctx, x.tree, y.tree, changed, emit)
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err != nil && ctx.Err() == nil:
		return noDiff("reading the names: " + err.Error())
	}
	return err
}

// changedObjects asks the kernel for the numbers of what differs in a snapshot and in a younger one, or a dataset. It is
// never asked for a name: ZFS keeps one directory for a file, that of the name it was given last, whether that is there still or not, and
// what makes a path of it (zfs_obj_to_path_impl of OpenZFS 2.1) writes beyond its buffer where that is longer than 8 KiB.
func changedObjects(older, younger string) (zfs.Objects, error) {
	if !known() {
		return nil, errors.New("its version of ZFS is not 2")
	}
	if !isSnapshot(younger) {
		name, gone, err := zfs.Temporary(younger, "diff-"+unique())
		if err != nil {
			return nil, err
		}
		defer gone.Close()
		younger = name
	}
	return zfs.Changed(older, younger)
}

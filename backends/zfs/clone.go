//go:build linux

package zfs

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

var (
	_ snapshot.Cloner       = (*Backend)(nil)
	_ snapshot.AtomicCloner = (*Backend)(nil)
)

// Clone makes the snapshot id of a tree and its first fork, for [snapshot.Cloner]. It places a hold on the
// snapshot while the clone is made; the snapshot is mounted at its first lookup. Cost: two transaction
// groups.
func (b *Backend) Clone(ctx context.Context, tree snapshot.Tree, id snapshot.ID, fork snapshot.ForkID) (snapshot.Snapshot, snapshot.Fork, error) {
	c, err := b.cloneTrees(ctx, []snapshot.Cloning{{Tree: tree, ID: id, Fork: fork}})
	if err != nil {
		return snapshot.Snapshot{}, snapshot.Fork{}, fail("cloning", string(fork), err)
	}
	return b.unseen(c[0].base), b.forkOf(c[0].fork), nil
}

// Instant returns the name of the ZFS pool of a tree, for [snapshot.AtomicCloner]: only trees in one pool can
// be snapshotted in one transaction group.
func (b *Backend) Instant(tree snapshot.Tree) (string, error) {
	src, err := findSource(tree.Path)
	return poolOf(src.dataset), fail("looking up", "", err)
}

// CloneAtomically makes a snapshot and a fork of each of several trees, for [snapshot.AtomicCloner]: one
// transaction makes all snapshots. Cost: that of as many calls of Clone. ErrNotSupported: two of the trees
// are in one dataset, or in different pools.
func (b *Backend) CloneAtomically(ctx context.Context, trees []snapshot.Cloning) ([]snapshot.Snapshot, error) {
	all, err := b.cloneTrees(ctx, trees)
	var bases []snapshot.Snapshot
	for _, c := range all {
		bases = append(bases, b.unseen(c.base))
	}
	return bases, fail("cloning", "", err)
}

// unseen returns the snapshot that the mark m describes, without its view (the path to read it at), because
// unseen mounts nothing.
func (b *Backend) unseen(m mark) snapshot.Snapshot {
	s := b.snapshotOf(m)
	s.View = snapshot.View{}
	return s
}

// A cloned is a snapshot and a fork that Clone is to make of one tree: the tree's path and the descriptions
// of both.
type cloned struct {
	tree       string
	base, fork mark
}

func (b *Backend) cloneTrees(ctx context.Context, trees []snapshot.Cloning) ([]cloned, error) {
	all, err := clonedAs(trees)
	if err != nil {
		return nil, err
	}
	r, err := b.openOrCreate()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var grown []mark
	err = r.entries(ctx, all, func() error {
		return snapAndHold(ctx, all, func() error {
			for _, c := range all {
				if err := r.makeFork(ctx, c.base, c.fork); err != nil {
					return err
				}
				grown = append(grown, c.fork)
			}
			return nil
		})
	})
	if err == nil {
		return all, nil
	}
	for _, m := range grown {
		entry := forks + "/" + m.id
		err = errors.Join(err, r.unmount(entry, false), r.giveUp(entry))
	}
	return nil, err
}

// clonedAs returns the descriptions of the snapshots and forks to make of these trees. All snapshots share
// one unique number, so that one call makes them.
func clonedAs(trees []snapshot.Cloning) (all []cloned, err error) {
	seen := map[string]bool{}
	for _, t := range trees {
		if err := valid(string(t.ID), string(t.Fork)); err != nil {
			return nil, err
		}
		base, err := captureOf(t.Tree, string(t.ID))
		if err != nil {
			return nil, err
		}
		if len(all) > 0 {
			first := all[0].base
			base.unique, base.taken = first.unique, first.taken
			base.dataset = snapshotName(base.source, base.unique)
			if poolOf(base.source) != poolOf(first.source) || seen[base.source] {
				return nil, &errs.Error{Kind: errs.ErrNotSupported, Path: t.Tree.Path, Err: errors.New("one transaction can only snapshot different datasets of one pool")}
			}
		}
		seen[base.source] = true
		all = append(all, cloned{t.Tree.Path, base, forkOfMark(base, string(t.Fork))})
	}
	return all, nil
}

// snapAndHold makes the snapshots of all at one instant. Then it calls meanwhile, which makes the forks,
// while another goroutine places the holds on the snapshots.
func snapAndHold(ctx context.Context, all []cloned, meanwhile func() error) error {
	var from, names []string
	for _, c := range all {
		from, names = append(from, c.tree), append(names, c.base.dataset)
	}
	if err := snap(ctx, from, names, all[0].base.unique); err != nil {
		return err
	}
	var held error
	var holding sync.WaitGroup
	holding.Go(func() { held = hold(ctx, names...) })
	err := meanwhile()
	holding.Wait()
	return errors.Join(held, err)
}

// entries makes the directories of all snapshots in the state directory, each with its mark (the text file
// that describes it), and then calls do, which makes the ZFS snapshots. It mounts nothing. After an error
// none of the directories remains.
func (r dataDir) entries(ctx context.Context, all []cloned, do func() error) error {
	if len(all) == 0 {
		return do()
	}
	return r.entry(ctx, all[0].base, func() error { return r.entries(ctx, all[1:], do) })
}

func poolOf(dataset string) string {
	if end := strings.IndexAny(dataset, "/@"); end >= 0 {
		return dataset[:end]
	}
	return dataset
}

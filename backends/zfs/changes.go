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

// ListChanges yields the paths at which a fork may differ from its snapshot base, for
// [snapshot.ChangeLister]: the kernel lists the changed objects, and directory reads find their names. It
// first syncs the fork. Cost: a transaction group, and reading all directories of one tree and the changed
// ones of the other.
func (b *Backend) ListChanges(ctx context.Context, base snapshot.ID, fork snapshot.ForkID) iter.Seq2[snapshot.Candidate, error] {
	return b.compare(string(fork), func(r dataDir, emit func(snapshot.Candidate) bool) error {
		x, err := r.side(snapshots, string(base))
		if err != nil {
			return err
		}
		y, err := r.side(forks, string(fork))
		if err != nil {
			return err
		}
		return diff(ctx, x, y, emit)
	})
}

// ListChangesBetween yields the paths at which the snapshots s and t may differ, for [snapshot.ChangeLister].
// ErrNotSupported: the older is no ancestor of the younger, or the fork from which the younger was sealed has
// been removed.
func (b *Backend) ListChangesBetween(ctx context.Context, s, t snapshot.ID) iter.Seq2[snapshot.Candidate, error] {
	return b.compare(string(t), func(r dataDir, emit func(snapshot.Candidate) bool) error {
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
		return diff(ctx, x, y, emit)
	})
}

// DetectDrift yields the paths of the real tree that changed since the snapshot id, for
// [snapshot.DriftDetector]. It compares them as ListChanges does.
func (b *Backend) DetectDrift(ctx context.Context, id snapshot.ID) iter.Seq2[snapshot.Candidate, error] {
	return b.compare(string(id), func(r dataDir, emit func(snapshot.Candidate) bool) error {
		x, err := r.side(snapshots, string(id))
		if err != nil {
			return err
		}
		src, err := findSource(x.mark.tree)
		if err != nil {
			return notFoundIfMissing(err)
		}
		if src != (source{x.mark.source, x.mark.within}) || isFork(x.mark.dataset) {
			return noDiff("the tree is on another dataset than at its capture")
		}
		y := side{mark: x.mark, tree: x.mark.tree}
		y.mark.dataset = src.dataset
		return diff(ctx, x, y, emit)
	})
}

func isFork(dataset string) bool { return strings.Contains(dataset, "/"+homeName+"/") }

func noDiff(why string) error { return &errs.Error{Kind: errs.ErrNotSupported, Err: errors.New(why)} }

func (b *Backend) compare(id string, with func(dataDir, func(snapshot.Candidate) bool) error) iter.Seq2[snapshot.Candidate, error] {
	return func(yield func(snapshot.Candidate, error) bool) {
		r, err := b.enter()
		if err != nil {
			yield(snapshot.Candidate{}, fail("comparing", id, notFoundIfMissing(err)))
			return
		}
		defer r.Close()
		if err := with(r, func(t snapshot.Candidate) bool { return yield(t, nil) }); err != nil {
			yield(snapshot.Candidate{}, fail("comparing", id, err))
		}
	}
}

// A side is one of the two trees that diff compares: the description of the snapshot or fork, and the path
// where it is mounted.
type side struct {
	mark mark
	tree string // the path of the tree
}

func (r dataDir) side(kind, id string) (side, error) {
	m, err := r.find(kind, id)
	if err == nil {
		err = r.ensureMounted(m)
	}
	return side{m, path.Join(r.Name(), kind, id, treeName, m.within)}, err
}

// diff calls emit with the differences between the snapshot x and the younger state y. Every error of the
// kernel's diff or of reading names becomes ErrNotSupported, so that the caller walks both trees.
func diff(ctx context.Context, x, y side, emit func(snapshot.Candidate) bool) error {
	if x.mark.dataset == y.mark.dataset {
		return nil
	}
	if !isSnapshot(y.mark.dataset) {
		if err := flush(y.tree); err != nil {
			return notFoundIfMissing(err)
		}
	}
	changed, err := changedObjects(x.mark.dataset, y.mark.dataset)
	if err != nil {
		return noDiff("the kernel cannot list the changes: " + err.Error())
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

// changedObjects returns the numbers of the ZFS objects (files, directories) that differ between the snapshot
// older and younger, a later snapshot or a dataset as it is now. It never asks the kernel for names: ZFS
// stores one parent for a file, that of its last link, even a removed one; and its path function
// (zfs_obj_to_path_impl of OpenZFS 2.1) overflows its buffer for a path over 8 KiB.
func changedObjects(older, younger string) (zfs.Objects, error) {
	if !knownVersion() {
		return nil, errors.New("not ZFS version 2")
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

package plain

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/heldspace"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

var _ snapshot.Meter = (*backend)(nil)

// MeasureExclusive returns the disk space of the copies that the snapshots ids are, for [snapshot.Meter], without the
// blocks that another copy or the real tree shares. Cost: a look at each file of these snapshots and, where the
// filesystem shares blocks, at each file of every other snapshot and fork.
func (b *backend) MeasureExclusive(ctx context.Context, ids []snapshot.ID) ([]snapshot.Bytes, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	m := &heldspace.Meter{}
	err := b.addMeasured(ctx, m, ids)
	if err == nil && m.NeedsOthers() {
		err = b.addOthers(ctx, m, ids)
	}
	if err != nil {
		return nil, fail("measuring", "", err)
	}
	return snapshot.SumExclusive(len(ids), func(add func(snapshot.Bytes, int)) {
		m.Each(func(size int64, last int) { add(snapshot.Bytes(size), last) })
	}), nil
}

// addMeasured adds the files of the snapshots ids to m, and for each file that shares blocks the one at the same path
// of the real tree, as one that stays.
func (b *backend) addMeasured(ctx context.Context, m *heldspace.Meter, ids []snapshot.ID) error {
	shared := map[string][]string{} // paths in the real tree, by the path of that
	for i, id := range ids {
		s, err := b.find(snapshots, string(id))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errs.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		err = m.AddTree(ctx, b.path(snapshots, string(id)), i, func(path string) {
			if rel, ok := strings.CutPrefix(path, "tree/"); ok {
				shared[s.tree] = append(shared[s.tree], rel)
			}
		})
		if err != nil {
			return err
		}
	}
	for tree, paths := range shared {
		slices.Sort(paths)
		if err := addReal(m, tree, slices.Compact(paths)); err != nil {
			return err
		}
	}
	return nil
}

// addReal adds the files at these paths of the real tree to m as files that stay.
func addReal(m *heldspace.Meter, tree string, paths []string) error {
	root, err := vfs.OpenDir(unix.AT_FDCWD, tree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	for _, path := range paths {
		if st, err := vfs.Lstat(int(root.Fd()), path); err == nil { // otherwise the real tree has no such file any more
			m.Add(int(root.Fd()), path, &st, heldspace.Other)
		}
	}
	return nil
}

// addOthers adds the files of all snapshots and forks but the snapshots ids to m, as files that stay.
func (b *backend) addOthers(ctx context.Context, m *heldspace.Meter, ids []snapshot.ID) error {
	others, grown, err := b.List(ctx)
	if err != nil {
		return err
	}
	var homes []string
	for _, id := range others {
		if !slices.Contains(ids, id) {
			homes = append(homes, b.path(snapshots, string(id)))
		}
	}
	for _, id := range grown {
		homes = append(homes, b.path(forks, string(id)))
	}
	for _, home := range homes {
		if err := m.AddTree(ctx, home, heldspace.Other, nil); err != nil {
			return err
		}
	}
	return nil
}

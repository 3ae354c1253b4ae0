//go:build linux

package btrfs

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
)

var _ snapshot.Meter = (*Backend)(nil)

// MeasureExclusive returns the disk space of the data extents that only the snapshots ids hold, for
// [snapshot.Meter]. The filesystem's own references say which subvolumes share an extent. Metadata,
// and small files that btrfs stores in it, do not count. Only root can measure.
func (b *Backend) MeasureExclusive(ctx context.Context, ids []snapshot.ID) ([]snapshot.Bytes, error) {
	held, err := b.measureHeld(ctx, ids)
	return held, b.fail("measuring", "", err)
}

func (b *Backend) measureHeld(ctx context.Context, ids []snapshot.ID) ([]snapshot.Bytes, error) {
	r, err := b.enter()
	if err != nil && len(ids) == 0 && errors.Is(notFoundIfMissing(err), errs.ErrNotFound) {
		return nil, b.mayMeasure() // there is no data yet
	}
	if err != nil {
		return nil, notFoundIfMissing(err)
	}
	defer r.close()
	if len(ids) == 0 {
		return nil, b.mayMeasure()
	}
	m := heldMeter{ctx: ctx, index: map[uint64]int{}, extents: map[uint64]int64{}, others: map[uint64]bool{}}
	defer m.close()
	for i, id := range ids {
		if err := m.open(r, id, i); err != nil {
			return nil, err
		}
	}
	if err := m.search(); err != nil {
		return nil, err
	}
	return m.sum(r, len(ids))
}

// mayMeasure returns ErrNotSupported if this process may not read the filesystem's records of extents.
func (b *Backend) mayMeasure() error {
	top, err := os.Open(b.top)
	if err != nil {
		return err
	}
	defer top.Close()
	return searchError(btrfs.Search(int(top.Fd()), btrfs.Range{MinObject: 256, MaxObject: 256, Most: 1}, func(btrfs.Item) bool { return false }))
}

// A heldMeter finds the data extents that a list of snapshots holds, and which of them nothing else holds.
type heldMeter struct {
	ctx     context.Context
	sides   []*side
	index   map[uint64]int   // in the list, by the id of the subvolume
	extents map[uint64]int64 // sizes on disk, by address
	others  map[uint64]bool  // whether another subvolume exists, by its id
}

func (m *heldMeter) close() {
	for _, s := range m.sides {
		s.close()
	}
}

// open adds the snapshot id, which has the index i in the list, unless it does not exist.
func (m *heldMeter) open(r dataDir, id snapshot.ID, i int) error {
	s, err := r.side(snapshots, string(id))
	if id == "" || errors.Is(err, errs.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	m.sides = append(m.sides, s)
	m.index[s.info.ID] = i
	if len(s.nested) > 0 {
		return &errs.Error{Kind: errs.ErrNotSupported, Err: errors.New("the tree contains further subvolumes, whose space is not counted for a snapshot")}
	}
	return nil
}

// search collects the extents that were written in the state of the snapshots. Of a snapshot that descends
// from another of them it searches only what was written since.
func (m *heldMeter) search() error {
	slices.SortFunc(m.sides, func(a, b *side) int { return cmp.Compare(a.info.Born, b.info.Born) })
	for i, s := range m.sides {
		var since uint64
		if len(s.line) > 0 {
			since = s.line[0].at // the capture of the real tree, which holds what is older
		}
		for _, before := range m.sides[:i] {
			if at, ok := commonTransaction(before.line, s.line); ok {
				since = max(since, at)
			}
		}
		err := btrfs.Search(s.fd, btrfs.Range{NewerThan: since, MinType: btrfs.ExtentData, MaxType: btrfs.ExtentData}, func(it btrfs.Item) bool {
			if address, size := it.Extent(); size > 0 && it.NewExtent(since) > 0 {
				m.extents[address] = size
			}
			return m.ctx.Err() == nil
		})
		if err = cmp.Or(searchError(err), m.ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// sum returns, for each index i in the list of n snapshots, the disk space that only the snapshots from i on hold.
func (m *heldMeter) sum(r dataDir, n int) ([]snapshot.Bytes, error) {
	var failure error
	held := snapshot.SumExclusive(n, func(add func(snapshot.Bytes, int)) {
		for address, size := range m.extents {
			last := -1
			err := btrfs.Holders(r.fd, address, func(subvolume uint64) bool {
				i, ours := m.index[subvolume]
				switch {
				case ours:
					last = max(last, i)
				case m.exists(r, subvolume):
					last = -1
					return false
				}
				return m.ctx.Err() == nil
			})
			if err = cmp.Or(searchError(err), m.ctx.Err()); err != nil {
				failure = err
				return
			}
			if last >= 0 {
				add(snapshot.Bytes(size), last)
			}
		}
	})
	return held, failure
}

// exists reports whether the subvolume id, which is not one of the measured snapshots, still exists. The kernel keeps
// the references of a deleted subvolume until it has freed the data.
func (m *heldMeter) exists(r dataDir, id uint64) bool {
	there, known := m.others[id]
	if !known {
		there = id < btrfs.RootInode || btrfs.IsThere(r.fd, id) // the filesystem's own top has a small id and no name
		m.others[id] = there
	}
	return there
}

//go:build linux

package overlay

import (
	"context"
	"os"
	"strconv"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
)

var _ snapshot.Meter = (*backend)(nil)

// MeasureExclusive returns the disk space of the layers that only the snapshots ids use, for
// [snapshot.Meter]. A snapshot of a fork that nothing used is one of the fork's own layers, which the
// fork holds, too, until a rollback. A snapshot of a fork in use is a copy. A copy that shares blocks with
// its original, as on xfs and btrfs, counts in full. Cost: reading all records, and once for each layer a walk.
func (b *backend) MeasureExclusive(ctx context.Context, ids []snapshot.ID) ([]snapshot.Bytes, error) {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	layers, err := b.store.ExclusiveLayers(ctx, names)
	if err != nil {
		return nil, fail("measuring", "", err)
	}
	held := snapshot.SumExclusive(len(ids), func(add func(snapshot.Bytes, int)) {
		for layer, last := range layers {
			size, e := b.layerSize(ctx, layer)
			if err == nil {
				err = e
			}
			add(size, last)
		}
	})
	if err != nil {
		return nil, fail("measuring", "", err)
	}
	return held, nil
}

// layerSize returns the disk space of a frozen layer. It walks the layer the first time, and leaves the
// result as a note in the layer's directory, since a frozen layer does not change.
func (b *backend) layerSize(ctx context.Context, layer string) (snapshot.Bytes, error) {
	const note = "size"
	if n, err := strconv.ParseInt(b.store.Note(layer, note), 10, 64); err == nil {
		return snapshot.Bytes(n), nil
	}
	m := meter{ctx: ctx, seen: map[uint64]bool{}}
	if err := store.Walk(b.store.TreePath(layer), m.visit); err != nil {
		return 0, err
	}
	_ = os.Symlink(strconv.FormatInt(int64(m.sum), 10), b.store.LayerPath(layer)+"/"+note) // without it the next call walks again
	return m.sum, nil
}

//go:build linux

package btrfs

import (
	"context"
	"math"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
)

var _ snapshot.SealComparer = (*Backend)(nil)

// ChangedSinceSeal reports a fork as changed if it has a file or directory that was made after the snapshot base, for
// [snapshot.SealComparer]. It searches the metadata in memory, where btrfs enters a new inode at once, and so needs no
// sync of the filesystem. Other changes reach the metadata only by a sync, so known is false if there is no new inode.
// Only root may search.
func (b *Backend) ChangedSinceSeal(ctx context.Context, base snapshot.ID, fork snapshot.ForkID) (changed, known bool) {
	r, err := b.enter()
	if err != nil {
		return false, false
	}
	defer r.close()
	x, err := r.side(snapshots, string(base))
	if err != nil {
		return false, false
	}
	defer x.close()
	y, err := r.side(forks, string(fork))
	if err != nil {
		return false, false
	}
	defer y.close()
	since, related := commonTransaction(x.line, y.line)
	if !related {
		return false, false
	}
	inodes := btrfs.Range{
		MinObject: btrfs.RootInode, MaxObject: math.MaxUint64 - 255, NewerThan: since, MinType: btrfs.InodeItem, MaxType: btrfs.InodeItem,
	}
	err = btrfs.Search(y.fd, inodes, func(it btrfs.Item) bool {
		inode, ok := it.Inode()
		changed = ok && inode.Made > since && inode.Links > 0
		return !changed && ctx.Err() == nil
	})
	return changed, changed && err == nil
}

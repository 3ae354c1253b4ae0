//go:build linux

package btrfs

import (
	"context"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/qgroup"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Usage returns the disk space of a fork, for [snapshot.ChangeLister]: the charge of its simple quota, or
// else the space of data written since the base, which only root can find out.
func (b *Backend) Usage(ctx context.Context, fork snapshot.ForkID) (snapshot.Bytes, error) {
	n, err := b.usage(ctx, string(fork))
	return snapshot.Bytes(n), b.fail("measuring", string(fork), err)
}

func (b *Backend) usage(ctx context.Context, fork string) (int64, error) {
	r, err := b.enter()
	if err != nil {
		return 0, notFoundIfMissing(err)
	}
	defer r.close()
	s, err := r.side(forks, fork)
	if err != nil {
		return 0, err
	}
	defer s.close()
	if err := vfs.SyncFS(r.fd); err != nil {
		return 0, err
	}
	if mode, _ := btrfs.QuotaModeOf(r.fd); mode == btrfs.QuotaSimple {
		if n, err := btrfs.Usage(r.fd, qgroup.Own(s.info.ID)); err == nil {
			return n, nil // includes nested subvolumes
		}
		if n, err := btrfs.Usage(r.fd, s.info.ID); err == nil {
			return n, nil
		}
	}
	return s.written(ctx)
}

// written returns the bytes of data that were written to the subvolume since it was created: the disk space
// of a fork beyond that of its base.
func (s *side) written(ctx context.Context) (int64, error) {
	var sum int64
	err := btrfs.Search(s.fd, btrfs.Range{NewerThan: s.info.Born}, func(it btrfs.Item) bool {
		sum += it.NewExtent(s.info.Born)
		return ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	return sum, searchError(err)
}

//go:build linux

package btrfs_test

import (
	"context"
	"testing"

	"github.com/snapfs/snapfs/backends/btrfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A lax is a backend whose limits are broken.
type lax struct {
	*btrfs.Backend
	limit func(b *btrfs.Backend, ctx context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error
	// forgets: a seal removes the limit.
	forgets bool
}

func (b *lax) LimitFork(ctx context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error {
	return b.limit(b.Backend, ctx, fork, l)
}

func (b *lax) Seal(ctx context.Context, fork snapshot.ForkID, id snapshot.ID, use snapshot.Use) (snapshot.Snapshot, error) {
	s, err := b.Backend.Seal(ctx, fork, id, use)
	if err == nil && b.forgets {
		err = b.Backend.LimitFork(ctx, fork, snapshot.DiskLimit{})
	}
	return s, err
}

func TestTheSuiteFindsBrokenLimits(t *testing.T) {
	treetest.NeedRoot(t)
	honest := func(b *btrfs.Backend, ctx context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error {
		return b.LimitFork(ctx, fork, l)
	}
	times := func(up, down snapshot.Bytes) func(*btrfs.Backend, context.Context, snapshot.ForkID, snapshot.DiskLimit) error {
		return func(b *btrfs.Backend, ctx context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error {
			return b.LimitFork(ctx, fork, snapshot.DiskLimit{Bytes: l.Bytes * up / down, Inodes: l.Inodes})
		}
	}
	const ends = "a fork's writes end at its limit, whatever is written"
	for name, c := range map[string]struct {
		promise string
		lax     lax
	}{
		"none at all": {ends, lax{limit: times(0, 1)}},
		"too high":    {ends, lax{limit: times(12, 10)}},
		"too low":     {ends, lax{limit: times(8, 10)}},
		"says it can, and does not": {
			"a limit is enforced, or refused with a reason and a hint",
			lax{limit: func(b *btrfs.Backend, ctx context.Context, fork snapshot.ForkID, _ snapshot.DiskLimit) error {
				return b.LimitFork(ctx, fork, snapshot.DiskLimit{Inodes: 1})
			}},
		},
		"gone with a seal": {
			"a limit outlives sealing and reopening, which do not reset its count", lax{limit: honest, forgets: true},
		},
		"not lifted": {
			"a limit is increased, lowered and removed on a live fork",
			lax{limit: func(b *btrfs.Backend, ctx context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error {
				if l == (snapshot.DiskLimit{}) {
					return nil
				}
				return b.LimitFork(ctx, fork, l)
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject("lax")
			s.Driver.Open = func(ctx context.Context, place snapshot.Place) (snapshot.Backend, error) {
				b, err := btrfs.OpenFrom(ctx, "lax", place, place.Tree.Path)
				return &lax{b, c.lax.limit, c.lax.forgets}, err
			}
			if !snapshottest.Fails(t, s, c.promise) {
				t.Errorf("the suite does not notice")
			}
		})
	}
}

//go:build linux

package zfs

import (
	"context"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// CanLimit keeps the contract of [snapshot.LimitProber]: it cannot. What ZFS can
// bound, and why that is no [snapshot.DiskLimit], is in docs/design/0010-zfs.md.
func (b *Backend) CanLimit(_ context.Context, l snapshot.DiskLimit) error {
	return fail("limiting", "", refuse(b.dir, l))
}

// LimitFork keeps the contract of [snapshot.Limiter].
func (b *Backend) LimitFork(_ context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error {
	_, err := b.find(forks, string(fork))
	if err == nil {
		err = refuse(b.dir, l)
	}
	return fail("limiting", string(fork), err)
}

func refuse(dir string, l snapshot.DiskLimit) error {
	if l == (snapshot.DiskLimit{}) {
		return nil
	}
	return &problem{
		kind: errs.ErrNotSupported, path: dir,
		why: "a quota of ZFS cannot be set below what is used, counts no space that is allocated ahead, and refuses to seal a fork that is full",
		hints: []string{
			"snapfs pool create && snapfs pool import TREE",
			"snapfs run --backend overlay … (on an ext4 or xfs with project quotas)",
		},
	}
}

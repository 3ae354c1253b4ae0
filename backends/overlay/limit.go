//go:build linux

package overlay

import (
	"context"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
)

var _ snapshot.Limiter = (*backend)(nil)

// LimitPlace returns "", for [snapshot.Limiter]: each fork of this backend has a disk limit of its own, so
// forks cannot share one.
func (b *backend) LimitPlace() string { return "" }

// CanLimit returns the reason why forks cannot have the disk limit l, or nil, for [snapshot.Limiter]: only
// root can limit bytes and inodes, by project quotas.
func (b *backend) CanLimit(_ context.Context, l snapshot.DiskLimit) error {
	if l == (snapshot.DiskLimit{}) {
		return nil
	}
	return fail("limiting", "", b.projects.CanLimit(l))
}

// LimitFork sets the disk limit of a fork, for [snapshot.Limiter]. The first limit of a fork labels each file
// of its layer with a quota project id; a later one is a single call. Writes past the limit fail with EDQUOT
// on ext4 and ENOSPC on xfs. Symbolic links and other special files that existed before the first limit do
// not count.
//
// On xfs, a file of the base whose blocks were shared and then overwritten counts twice until it is on the
// disk. A fork that is full to the last block cannot be mounted writable on xfs until its limit is increased,
// because creating a directory reserves more space than it uses.
func (b *backend) LimitFork(ctx context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error {
	err := ctx.Err()
	if err == nil {
		err = b.withForkLocked(ctx, fork, func(r *store.Record) error { return b.projects.Limit(ctx, r, l) })
	}
	return fail("limiting", string(fork), err)
}

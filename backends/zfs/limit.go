//go:build linux

package zfs

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// CanLimit implements [snapshot.Limiter]. It returns ErrNotSupported: docs/design/0010-zfs.md
// explains which limits ZFS has, and why none is a [snapshot.DiskLimit].
func (b *Backend) CanLimit(_ context.Context, l snapshot.DiskLimit) error {
	return fail("limiting", "", refuse(b.dir, l))
}

// LimitFork implements [snapshot.Limiter]. It always returns ErrNotSupported.
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
	return &errs.Error{
		Kind: errs.ErrNotSupported, Path: dir,
		Err: errors.New("a ZFS quota cannot be below the present use, does not count preallocated space, and prevents sealing a full fork"),
		Hints: []string{
			"snapfs pool create && snapfs pool import TREE",
			"snapfs run --backend overlay … (on an ext4 or xfs with project quotas)",
		},
	}
}

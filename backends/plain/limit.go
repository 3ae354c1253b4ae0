package plain

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

var _ interface {
	snapshot.Limiter
} = (*backend)(nil)

// CanLimit implements [snapshot.Limiter]. It returns ErrNotSupported: processes write to a copy
// under their own user, and quotas do not limit root.
func (b *backend) CanLimit(_ context.Context, l snapshot.DiskLimit) error {
	return b.refuse("", l)
}

// LimitFork implements [snapshot.Limiter]. It always returns ErrNotSupported.
func (b *backend) LimitFork(_ context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error {
	if _, err := b.find(forks, string(fork)); err != nil {
		return fail("limiting", string(fork), err)
	}
	return b.refuse(string(fork), l)
}

func (b *backend) refuse(fork string, l snapshot.DiskLimit) error {
	if l == (snapshot.DiskLimit{}) {
		return nil
	}
	return &errs.Error{
		Op: "limiting", Component: name, Subject: fork, Path: b.dir, Kind: errs.ErrNotSupported,
		Err: &errs.Error{Kind: errs.ErrNotSupported, Err: errors.New("a copy of a tree has no counter for added data")},
		Hints: []string{
			"snapfs pool create && snapfs pool import TREE",
			"snapfs run --backend overlay … (on an ext4 or xfs with project quotas)",
		},
	}
}

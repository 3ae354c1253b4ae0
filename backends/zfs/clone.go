//go:build linux

package zfs

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// Clone keeps the contract of [snapshot.Cloner]. The snapshot is held while it is
// cloned, so that three runs of zfs(8) take the time of two.
func (b *Backend) Clone(ctx context.Context, tree snapshot.Tree, id snapshot.ID, fork snapshot.ForkID) (snapshot.Snapshot, snapshot.Fork, error) {
	s, f, err := b.cloneTree(ctx, tree, string(id), string(fork))
	return s, f, fail("cloning", string(fork), err)
}

func (b *Backend) cloneTree(ctx context.Context, tree snapshot.Tree, id, fork string) (s snapshot.Snapshot, f snapshot.Fork, err error) {
	if err := valid(id, fork); err != nil {
		return s, f, err
	}
	base, err := captureOf(tree, id)
	if err != nil {
		return s, f, err
	}
	r, err := b.settle()
	if err != nil {
		return s, f, err
	}
	defer r.Close()
	m := forkOfMark(base, fork)
	grown := false
	err = r.take(ctx, base, tree.Path, func() error {
		err := r.grow(ctx, base, m)
		grown = err == nil
		return err
	})
	if err != nil && grown {
		err = errors.Join(err, r.leave(forks+"/"+fork, false), r.giveUp(forks+"/"+fork))
	}
	return b.snapshotOf(base), b.forkOf(m), err
}

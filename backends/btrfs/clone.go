package btrfs

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
)

// Clone keeps the contract of [snapshot.Cloner]. The snapshot and the fork are
// taken by two threads at once; both carry the number of the commit that made
// them, and where it is the same one they are the same. Where not, because
// another commit came between, the fork is taken again, from the snapshot.
func (b *Backend) Clone(ctx context.Context, tree snapshot.Tree, id snapshot.ID, fork snapshot.ForkID) (snapshot.Snapshot, snapshot.Fork, error) {
	s, f, err := b.clone(ctx, tree, id, fork)
	if err != nil {
		return snapshot.Snapshot{}, snapshot.Fork{}, b.fail("cloning", string(fork), err)
	}
	return s, f, nil
}

func (b *Backend) clone(ctx context.Context, tree snapshot.Tree, id snapshot.ID, fork snapshot.ForkID) (s snapshot.Snapshot, f snapshot.Fork, err error) {
	c, err := b.prepare(ctx, tree)
	if err != nil {
		return s, f, err
	}
	defer c.done()
	if s, ok := c.unchanged(id); ok {
		f, err = b.Fork(ctx, s.ID, fork)
		return s, f, err
	}
	sm := c.mark()
	fm := sm
	fm.base = string(id)
	se, err := c.begin(ctx, snapshots+"/"+string(id), string(id), sm)
	if err != nil {
		return s, f, err
	}
	defer se.close()
	fe, err := c.begin(ctx, forks+"/"+string(fork), string(fork), fm)
	if err != nil {
		return s, f, errors.Join(err, se.giveUp())
	}
	defer fe.close()
	if err := c.pair(ctx, se, fe, id); err != nil {
		return s, f, errors.Join(err, fe.giveUp(), se.giveUp())
	}
	return b.snapshotOf(id, sm), b.forkOf(fork, fm), nil
}

// pair takes the snapshot and the fork, equal to each other.
func (c *capture) pair(ctx context.Context, se, fe *entry, id snapshot.ID) error {
	if nested, err := nestedIn(c.src, c.within); err != nil {
		return err
	} else if len(nested) > 0 {
		if err := c.take(ctx, se, id); err != nil {
			return err
		}
		return c.again(ctx, se, fe)
	}
	forked := make(chan error, 1)
	go func() { forked <- fe.copyFrom(ctx, c.src, c.within, false) }()
	err := errors.Join(c.take(ctx, se, id), <-forked)
	if err != nil {
		return err
	}
	if a, b := se.born(), fe.born(); a != 0 && a == b {
		return nil
	}
	return c.again(ctx, se, fe)
}

func (e *entry) born() uint64 {
	fd, err := e.room.open(e.path + "/" + treeName)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	info, err := kernel.BtrfsInfo(fd)
	if err != nil {
		return 0
	}
	return info.Born
}

// again makes the entry fe a fork of the snapshot se instead of what it is.
func (c *capture) again(ctx context.Context, se, fe *entry) error {
	sm, info, err := c.loadAt(se.path)
	if err != nil {
		return err
	}
	fm := sm
	fm.base, fm.from, fm.line = baseName(se.path), "", sm.descent(info.Born)
	if err := c.discard(fe.path, "unequal"); err != nil {
		return err
	}
	fe.close()
	fresh, err := c.begin(ctx, fe.path, baseName(fe.path), fm)
	if err != nil {
		return err
	}
	*fe = *fresh
	src, err := c.open(se.path + "/" + treeName)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	return fe.copyFrom(ctx, src, c.within, false)
}

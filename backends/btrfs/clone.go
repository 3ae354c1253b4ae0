//go:build linux

package btrfs

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Clone keeps the contract of [snapshot.Cloner]. The snapshot and the fork are
// taken by two threads at once; both carry the number of the commit that made
// them, and where it is the same one they are the same. Where not, and something
// changed in between, the fork is taken again, from the snapshot.
func (b *Backend) Clone(ctx context.Context, tree snapshot.Tree, id snapshot.ID, fork snapshot.ForkID) (snapshot.Snapshot, snapshot.Fork, error) {
	return b.CloneAsOf(ctx, tree, id, fork, vfs.Now())
}

// CloneAsOf is Clone of what stands for an earlier instant.
func (b *Backend) CloneAsOf(ctx context.Context, tree snapshot.Tree, id snapshot.ID, fork snapshot.ForkID, taken time.Time) (snapshot.Snapshot, snapshot.Fork, error) {
	s, f, err := b.clone(ctx, tree, id, fork, taken)
	if err != nil {
		return snapshot.Snapshot{}, snapshot.Fork{}, b.fail("cloning", string(fork), err)
	}
	return s, f, nil
}

func (b *Backend) clone(ctx context.Context, tree snapshot.Tree, id snapshot.ID, fork snapshot.ForkID, taken time.Time) (s snapshot.Snapshot, f snapshot.Fork, err error) {
	if err := valid(string(id), string(fork)); err != nil {
		return s, f, err
	}
	c, err := b.prepare(ctx, tree)
	if err != nil {
		return s, f, err
	}
	defer c.done()
	// Finding the tree unchanged may cost a commit itself, so that it pays
	// only where the fork then costs none.
	if last, _ := c.last(); last.ID != "" && c.stocked(string(last.ID)) {
		if s, ok := c.unchanged(id); ok {
			f, err = b.Fork(ctx, s.ID, fork)
			return s, f, err
		}
	}
	sm := c.mark(taken)
	fm := sm
	fm.kind, fm.base = forks, string(id)
	se, err := c.begin(ctx, snapshots, string(id), sm)
	if err != nil {
		return s, f, err
	}
	defer se.close()
	fe, err := c.begin(ctx, forks, string(fork), fm)
	if err != nil {
		return s, f, errors.Join(err, se.giveUp())
	}
	defer fe.close()
	if err := c.pair(ctx, se, fe, id); err != nil {
		return s, f, errors.Join(err, fe.giveUp(), se.giveUp())
	}
	return b.snapshotOf(id, sm), b.forkOf(fork, fm), nil
}

// waiting is how long one thread of a pair waits for the other to be ready.
const waiting = 200 * time.Microsecond

// prelude is what comes before the two calls.
func (c *capture) prelude(ctx context.Context, id snapshot.ID) error {
	if err := fault.Point(ctx, "note it as the latest"); err != nil {
		return err
	}
	if err := c.note(string(id)); err != nil {
		return err
	}
	return fault.Point(ctx, "snapshot the subvolume twice")
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
	if err := c.prelude(ctx, id); err != nil {
		return err
	}
	// Both calls have to be in the kernel before either begins to commit, so
	// the two threads wait for each other, awake: waking one takes too long.
	var ready atomic.Int32
	both := func(e *entry, readOnly bool) error {
		ready.Add(1)
		for until := time.Now().Add(waiting); ready.Load() < 2 && time.Now().Before(until); {
			runtime.Gosched()
		}
		return take(c.src, e.fd, treeName, readOnly)
	}
	forked := make(chan error, 1)
	go func() { forked <- both(fe, false) }()
	err := both(se, true)
	if err := errors.Join(err, <-forked); err != nil {
		return err
	}
	if c.equal(se, fe) {
		return nil
	}
	return c.again(ctx, se, fe)
}

// equal reports whether two copies of the source were made by one commit, or
// nothing changed in between, which only root can see.
func (c *capture) equal(x, y *entry) bool {
	a, errA := x.born()
	b, errB := y.born()
	if errA != nil || errB != nil {
		return false
	}
	if a.Born == b.Born {
		return true
	}
	if a.Born > b.Born {
		a, b = b, a
	}
	changed := false
	err := btrfs.Search(c.src, btrfs.Range{Tree: b.ID, NewerThan: a.Born}, func(it btrfs.Item) bool {
		node, ok := it.Inode()
		changed = ok && node.Changed > a.Born
		return !changed
	})
	return err == nil && !changed
}

func (e *entry) born() (btrfs.Subvolume, error) {
	fd, err := e.room.open(e.path + "/" + treeName)
	if err != nil {
		return btrfs.Subvolume{}, err
	}
	defer unix.Close(fd)
	return btrfs.Info(fd)
}

// again makes the entry fe a fork of the snapshot se instead of what it is.
func (c *capture) again(ctx context.Context, se, fe *entry) error {
	sm, info, err := c.loadAt(se.path)
	if err != nil {
		return err
	}
	fm := sm
	fm.kind, fm.base, fm.from, fm.line = forks, baseName(se.path), "", sm.descent(info.Born)
	if err := c.discard(fe.path, "unequal"); err != nil {
		return err
	}
	fe.close()
	fresh, err := c.begin(ctx, forks, baseName(fe.path), fm)
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

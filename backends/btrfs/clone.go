//go:build linux

package btrfs

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Clone makes the snapshot id of a tree and its first fork at once, for [snapshot.Cloner]. Two threads make
// one subvolume each. Both subvolumes carry the transaction number of their commit; if the numbers are equal,
// so are the subvolumes. If they differ, and the source changed in between, Clone makes the fork again from
// the snapshot.
func (b *Backend) Clone(ctx context.Context, tree snapshot.Tree, id snapshot.ID, fork snapshot.ForkID) (snapshot.Snapshot, snapshot.Fork, error) {
	return b.CloneAsOf(ctx, tree, id, fork, vfs.Now())
}

// CloneAsOf is [Backend.Clone] for a tree that is itself a copy of the user's tree, made earlier: taken is
// the time of that copy, which the snapshot records as its own.
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
	// Finding the tree unchanged may cost a commit itself, so it is worth it only if a ready-made
	// fork then saves one.
	if last, _ := c.last(); last.ID != "" && c.hasReadyMade(string(last.ID)) {
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

// waiting bounds how long the two threads of Clone, of which one makes the snapshot and the other the fork,
// wait for each other so that one commit covers both. After that each continues alone.
const waiting = 200 * time.Microsecond

// prelude records the new snapshot id as the latest of its tree, before Clone makes the btrfs snapshots, so
// that one commit covers all.
func (c *capture) prelude(ctx context.Context, id snapshot.ID) error {
	if err := fault.Point(ctx, "record it as the latest"); err != nil {
		return err
	}
	if err := c.recordLatest(string(id)); err != nil {
		return err
	}
	return fault.Point(ctx, "snapshot the subvolume twice")
}

// pair makes the snapshot id of the captured subvolume in the directory se, and an equal fork in the
// directory fe. [Backend.Clone] calls it to make both at once.
func (c *capture) pair(ctx context.Context, se, fe *entry, id snapshot.ID) error {
	if nested, err := nestedIn(c.src, c.within); err != nil {
		return err
	} else if len(nested) > 0 {
		if err := c.takeSnapshot(ctx, se, id); err != nil {
			return err
		}
		return c.remake(ctx, se, fe)
	}
	if err := c.prelude(ctx, id); err != nil {
		return err
	}
	// Both calls must be in the kernel before either begins to commit. Each thread spins until the
	// other is ready, because waking a thread takes too long.
	var ready atomic.Int32
	both := func(e *entry, readOnly bool) error {
		ready.Add(1)
		for until := time.Now().Add(waiting); ready.Load() < 2 && time.Now().Before(until); {
			runtime.Gosched()
		}
		return snapshotInto(c.src, e.fd, treeName, readOnly)
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
	return c.remake(ctx, se, fe)
}

// equal reports whether the subvolumes x and y, two copies of one source, have the same content: one commit
// made both, or no change happened between their commits. Only root can detect the latter.
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
	fd, err := e.data.open(e.path + "/" + treeName)
	if err != nil {
		return btrfs.Subvolume{}, err
	}
	defer unix.Close(fd)
	return btrfs.Info(fd)
}

// remake replaces the fork in fe by a writable copy of the snapshot in se. [Backend.Clone] calls it if it has
// made both at once and they differ.
func (c *capture) remake(ctx context.Context, se, fe *entry) error {
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
	return fe.copyFrom(ctx, origin{src, c.within, se.path}, false)
}

package btrfs

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/kernel"
)

// A capture is a tree about to be captured.
type capture struct {
	*Backend
	room
	tree   snapshot.Tree
	within string
	src    int // the root of the subvolume
	info   kernel.Subvolume
}

func (c *capture) done() {
	unix.Close(c.src)
	c.room.close()
}

// prepare finds the tree and opens what is needed to capture it.
func (b *Backend) prepare(ctx context.Context, tree snapshot.Tree) (*capture, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path := tree.Path
	if path == b.tree {
		path = b.from
	}
	src, err := findSource(path)
	if err != nil {
		return nil, err
	}
	r, err := b.settle()
	if err != nil {
		return nil, err
	}
	c := &capture{Backend: b, room: r, tree: tree, within: src.within}
	c.src, err = unix.Open(src.root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		c.info, err = kernel.BtrfsInfo(c.src)
	}
	if err != nil {
		c.done()
		return nil, &os.PathError{Op: "open", Path: src.root, Err: err}
	}
	return c, nil
}

func (c *capture) mark() mark {
	return mark{tree: c.tree.Path, within: c.within, taken: now(), from: c.info.UUID.String()}
}

// Capture keeps the contract of [snapshot.Backend]: a read-only snapshot of the
// subvolume, in one transaction commit. Where nothing has changed in the
// subvolume since the last capture of this tree, that one is the answer.
func (b *Backend) Capture(ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
	c, err := b.prepare(ctx, tree)
	if err != nil {
		return snapshot.Snapshot{}, b.fail("capturing", string(id), err)
	}
	defer c.done()
	if s, ok := c.unchanged(id); ok {
		return s, nil
	}
	m := c.mark()
	e, err := c.begin(ctx, snapshots+"/"+string(id), string(id), m)
	if err != nil {
		return snapshot.Snapshot{}, b.fail("capturing", string(id), err)
	}
	defer e.close()
	if err := c.take(ctx, e, id); err != nil {
		return snapshot.Snapshot{}, b.fail("capturing", string(id), errors.Join(err, e.giveUp()))
	}
	return b.snapshotOf(id, m), nil
}

// take makes the snapshot in its entry, and remembers it as the latest of its
// tree; before the commit, so that the commit keeps that too.
func (c *capture) take(ctx context.Context, e *entry, id snapshot.ID) error {
	if err := fault.Point(ctx, "note it as the latest"); err != nil {
		return err
	}
	if err := c.note(string(id)); err != nil {
		return err
	}
	return e.copyFrom(ctx, c.src, c.within, true)
}

func (c *capture) note(id string) error {
	tmp := trash + "/" + unique()
	if err := unix.Symlinkat(id, c.fd, tmp); err != nil {
		return &os.PathError{Op: "write", Path: latest, Err: err}
	}
	if err := unix.Renameat(c.fd, tmp, c.fd, c.latest()); err != nil {
		return &os.PathError{Op: "write", Path: latest, Err: err}
	}
	return nil
}

func (c *capture) latest() string { return latest + "/" + hash(c.tree.Path) }

// patience is how long to wait for the filesystem to write what is buffered,
// only to learn that nothing has changed: about what a new snapshot costs.
const patience = 3 * time.Millisecond

// unchanged answers with the last snapshot of the tree if the subvolume is
// certainly as it was then. It gives up rather than cost more than a snapshot.
func (c *capture) unchanged(id snapshot.ID) (snapshot.Snapshot, bool) {
	var none snapshot.Snapshot
	last, born := c.last()
	if last.ID == "" || last.ID == id || c.has(snapshots, string(id)) || c.changedSince(born) {
		return none, false
	}
	if nested, err := nestedIn(c.src, c.within); err != nil || len(nested) > 0 {
		return none, false
	}
	if !c.flush() || c.changedSince(born) {
		return none, false
	}
	return last, true
}

// last finds the latest snapshot of the tree and the transaction it was born in.
func (c *capture) last() (snapshot.Snapshot, uint64) {
	buf := make([]byte, 65)
	n, err := unix.Readlinkat(c.fd, c.latest(), buf)
	if err != nil || !snapshot.ValidID(string(buf[:n])) {
		return snapshot.Snapshot{}, 0
	}
	id := string(buf[:n])
	m, info, err := c.load(snapshots, id)
	if err != nil || m.tree != c.tree.Path || m.within != c.within || m.from != c.info.UUID.String() {
		return snapshot.Snapshot{}, 0
	}
	return c.snapshotOf(snapshot.ID(id), m), info.Born
}

// flush writes what is buffered, unless that takes longer than patience.
func (c *capture) flush() bool {
	fd, err := unix.FcntlInt(uintptr(c.src), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false
	}
	done := make(chan error, 1)
	go func() {
		defer unix.Close(fd)
		done <- kernel.SyncFS(fd)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err == nil
	case <-timer.C:
		return false
	}
}

// changedSince reports whether the subvolume may have changed after a
// transaction, as far as it has been written out. Snapshots count as changes of
// its generation; root can look closer.
func (c *capture) changedSince(born uint64) bool {
	changed := false
	err := kernel.BtrfsSearch(c.src, kernel.BtrfsRange{NewerThan: born}, func(it kernel.BtrfsItem) bool {
		if node, ok := it.Inode(); ok && node.Changed > born {
			changed = true
		}
		return !changed
	})
	if err == unix.EPERM {
		info, err := kernel.BtrfsInfo(c.src)
		return err != nil || info.Generation > born
	}
	return err != nil || changed
}

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

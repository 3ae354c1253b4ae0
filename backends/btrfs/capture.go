//go:build linux

package btrfs

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A capture is the state of one running Capture or Clone. It holds open the data directory and the root of
// the captured subvolume, until done is called.
type capture struct {
	*Backend
	dataDir
	tree   snapshot.Tree
	within string
	src    int // the root of the subvolume
	info   btrfs.Subvolume
}

func (c *capture) done() {
	unix.Close(c.src)
	c.dataDir.close()
}

// prepare starts a capture of the real tree. It opens the subvolume that contains the tree, and the data
// directory, which prepare creates if needed. The caller must call done on the result.
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
	r, err := b.openOrCreate()
	if err != nil {
		return nil, err
	}
	c := &capture{Backend: b, dataDir: r, tree: tree, within: src.within}
	c.src, err = unix.Open(src.root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		c.info, err = btrfs.Info(c.src)
	}
	if err != nil {
		c.done()
		return nil, &os.PathError{Op: "open", Path: src.root, Err: err}
	}
	return c, nil
}

func (c *capture) mark(taken time.Time) mark {
	return mark{kind: snapshots, tree: c.tree.Path, within: c.within, taken: taken, from: c.info.UUID.String()}
}

// Capture makes the snapshot id of a tree, for [snapshot.Backend]: a read-only btrfs snapshot of its
// subvolume, in one transaction commit. If the subvolume is unchanged since the last capture of this tree, it
// returns that snapshot.
func (b *Backend) Capture(ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
	return b.CaptureAsOf(ctx, tree, id, vfs.Now())
}

// CaptureAsOf is [Backend.Capture] for a tree that is itself a copy of the user's tree, made earlier: taken
// is the time of that copy, which the snapshot records as its own.
func (b *Backend) CaptureAsOf(ctx context.Context, tree snapshot.Tree, id snapshot.ID, taken time.Time) (snapshot.Snapshot, error) {
	if err := valid(id); err != nil {
		return snapshot.Snapshot{}, b.fail("capturing", string(id), err)
	}
	c, err := b.prepare(ctx, tree)
	if err != nil {
		return snapshot.Snapshot{}, b.fail("capturing", string(id), err)
	}
	defer c.done()
	if s, ok := c.unchanged(id); ok {
		return s, nil
	}
	m := c.mark(taken)
	e, err := c.begin(ctx, snapshots, string(id), m)
	if err != nil {
		return snapshot.Snapshot{}, b.fail("capturing", string(id), err)
	}
	defer e.close()
	if err := c.takeSnapshot(ctx, e, id); err != nil {
		return snapshot.Snapshot{}, b.fail("capturing", string(id), errors.Join(err, e.giveUp()))
	}
	return b.snapshotOf(id, m), nil
}

// takeSnapshot makes a btrfs snapshot of the captured subvolume in the directory e. It first records the
// snapshot id as the latest of its tree, so that one commit covers both.
func (c *capture) takeSnapshot(ctx context.Context, e *entry, id snapshot.ID) error {
	if err := fault.Point(ctx, "record it as the latest"); err != nil {
		return err
	}
	if err := c.recordLatest(string(id)); err != nil {
		return err
	}
	return e.copyFrom(ctx, origin{fd: c.src, within: c.within}, true)
}

func (c *capture) recordLatest(id string) error {
	tmp := trash + "/" + newborn + unique()
	if err := unix.Symlinkat(id, c.fd, tmp); err != nil {
		return &os.PathError{Op: "write", Path: latest, Err: err}
	}
	if err := unix.Renameat(c.fd, tmp, c.fd, c.latest()); err != nil {
		return &os.PathError{Op: "write", Path: latest, Err: err}
	}
	return nil
}

func (c *capture) latest() string { return latest + "/" + hash(c.tree.Path) }

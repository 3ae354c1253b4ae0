//go:build linux

package btrfs

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// patience is the longest wait for a sync whose only purpose is to find that the tree is unchanged. It is
// about the cost of the new snapshot that this would save.
const patience = 3 * time.Millisecond

// unchanged returns the last snapshot of the tree if the subvolume has certainly not changed since, so that
// Capture need not make the snapshot id. It returns false rather than cost more than a snapshot, and if id
// exists already, which is an error of Capture.
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

// last returns the latest snapshot of the tree and the number of the transaction that created it; both are
// zero if this subvolume has none.
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

// flush syncs the filesystem, so that a search of its metadata finds all changes. It reports whether that
// took less than patience (3 ms).
func (c *capture) flush() bool {
	fd, err := unix.FcntlInt(uintptr(c.src), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false
	}
	done := make(chan error, 1)
	go func() {
		err := vfs.SyncFS(fd)
		unix.Close(fd) // before the caller continues, which may unmount
		done <- err
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

// manyChanges is the number of changed inodes in a subvolume from which on the tree in it counts as changed
// without checking whether they lie in it.
const manyChanges = 256

// changedSince reports whether the tree may have changed after the transaction born, as far as changes are on
// the disk. Only root can find single files; for another user any change of the subvolume counts, including
// snapshots of it.
func (c *capture) changedSince(born uint64) bool {
	var changed []uint64
	err := btrfs.Search(c.src, btrfs.Range{NewerThan: born}, func(it btrfs.Item) bool {
		if node, ok := it.Inode(); ok && node.Changed > born {
			changed = append(changed, it.Object)
		}
		return len(changed) < manyChanges
	})
	switch {
	case err == unix.EPERM:
		info, err := btrfs.Info(c.src)
		return err != nil || info.Generation > born
	case err != nil, len(changed) == manyChanges:
		return true
	}
	return len(changed) > 0 && c.holdsAny(changed)
}

// holdsAny reports whether one of these inodes of the subvolume is in the captured tree, which may be only a
// directory of it.
func (c *capture) holdsAny(inodes []uint64) bool {
	var st unix.Stat_t
	if err := unix.Fstatat(c.src, c.within, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return true
	}
	names := newNamer(c.src, st.Ino)
	for _, ino := range inodes {
		if paths, err := names.paths(ino); err != nil || len(paths) > 0 {
			return true
		}
	}
	return false
}

package diff

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
)

// Options configure a comparison of two trees. The zero value compares everything.
type Options struct {
	// Skip reports whether to leave out a path and everything below it; nil skips none.
	// It is not called for the root, and must be safe for concurrent use.
	Skip func(path string) bool
	// OneFilesystem leaves out filesystems mounted in the trees, and nested subvolumes:
	// of a directory that is on either side the root of another filesystem, only name and
	// type are compared.
	OneFilesystem bool
	// SameInodes is set if both sides are states of one filesystem that preserve inode numbers
	// (two btrfs snapshots, an overlay and its lower). Nodes with equal inode number, change
	// time and size are then equal and not read.
	SameInodes bool
	// Taken is the time of the old side. With SameInodes, a change time later than [Racy]
	// before Taken proves nothing, because the file may have been written again within one
	// clock tick. Zero trusts every change time.
	Taken time.Time
	// Fold is, for [At], the least number of entries of a renamed directory that is not listed
	// in full: the deleted and the added directory stand for every entry that has no change
	// of its own, see [Change.Moved]. It needs candidates with [snapshot.Candidate.RenamedFrom].
	// 0 lists every entry.
	Fold int
	// OverlayViews leaves out the attributes of overlayfs itself (trusted.overlay.*,
	// user.overlay.*).
	OverlayViews bool
}

// Racy is how much older than a snapshot a file's change time must be to prove that the file was not written
// again after it: two ticks of the slowest kernel clock (100 Hz) that filesystems use.
const Racy = 20 * time.Millisecond

// Unsettled returns how long to wait until any further change of the file n certainly changes its change time; 0 if that
// is so now, if the change time lies in the future, and if n is nil.
func (n *Node) Unsettled() time.Duration {
	if n == nil {
		return 0
	}
	most := Racy + vfs.Coarseness(n.CTime)
	if left := most - time.Since(n.CTime); left > 0 && left <= most {
		return left
	}
	return 0
}

// Trees compares two trees by walking both, and returns the differences in the order of
// [ComparePaths]. old and new are directories, open for reading or with O_PATH, and stay open. It
// follows no symbolic link, and paths have no length limit.
//
// Either tree may change meanwhile: a node that appears or disappears during the walk is
// reported as it was found. A file that this process may read on neither side is compared by
// its metadata: an ordinary user's sandbox cannot have written it. If only one side is
// readable, the comparison fails with ErrDenied.
//
// Cost: a statx of every node on both sides, on two threads. It reads content if sizes are
// equal and Options.SameInodes does not prove equality.
// Errors: *errs.Error with the path; ErrDenied, ErrInterrupted, ErrCorrupt (an unreadable
// disk), ErrBusy (a path that keeps changing).
func Trees(ctx context.Context, old, new *os.File, opt Options) ([]Change, error) {
	defer runtime.KeepAlive(old)
	defer runtime.KeepAlive(new)
	d, err := newWalk(ctx, old, new, opt)
	if err != nil {
		return nil, err
	}
	d.push(task{path: ".", on: [2]bool{true, true}, deep: true})
	if err := d.drain(); err != nil {
		return nil, err
	}
	return d.changes(), nil
}

// changes returns the differences that all threads of the comparison found, in order: one for each path, with
// hard links named, and without paths that proved equal.
func (d *walk) changes() []Change {
	all := d.workers[0].found
	for _, w := range d.workers[1:] {
		all = append(all, w.found...)
	}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(ComparePaths(a.Path, b.Path), cmp.Compare(b.try, a.try)) // the latest try first
	})
	all = slices.CompactFunc(all, func(a, b found) bool { return a.Path == b.Path })
	d.dropTimes(all)
	changes := make([]Change, 0, len(all))
	for _, f := range all {
		if f.Old != nil || f.New != nil {
			changes = append(changes, f.Change)
		}
	}
	changes = nameLinks(changes)
	d.countFolded(changes)
	return changes
}

// dropTimes forgets that the modification time of a directory differs, if a name in it was added or removed,
// which alone sets the time. It does so for directories whose names the comparison did not read; the others
// were judged when they were read.
func (d *walk) dropTimes(all []found) {
	if len(d.unlisted) == 0 {
		return
	}
	moved := map[string]bool{}
	for _, f := range all {
		if (f.Old == nil) != (f.New == nil) {
			dir, _ := Split(f.Path)
			moved[dir] = true
		}
	}
	named := map[string]bool{}
	for _, dir := range d.unlisted {
		named[dir] = moved[dir]
	}
	for i := range all {
		if f := &all[i]; named[f.Path] {
			f.What &^= Time
		}
	}
}

package diff

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"slices"
	"time"
)

// Options say how two trees are compared. The zero value compares everything.
type Options struct {
	// Skip, where not nil, says which paths are left out, with all beneath
	// them. It is never asked about the root, and must be safe to call from
	// several goroutines.
	Skip func(path string) bool
	// OneFilesystem leaves out what is mounted in the trees, and nested
	// subvolumes: a directory that is on either side the root of another
	// filesystem is compared by name and type only.
	OneFilesystem bool
	// SameInodes: both sides are states of one filesystem that keep inode
	// numbers (two btrfs snapshots, an overlay and its lower layer), so that an equal
	// inode number, change time and size mean equal in all. Nothing of such
	// a node is read.
	SameInodes bool
	// Taken is the instant the old side stands for. With SameInodes a change
	// time up to [Racy] before it, or later, proves nothing, because the file
	// may have been written again within one tick of the clock. Zero trusts
	// every change time.
	Taken time.Time
	// OverlayViews leaves out the attributes in which overlayfs keeps its own
	// records (trusted.overlay.*, user.overlay.*).
	OverlayViews bool
}

// Racy is how long a change time must have been over when a snapshot is taken
// to tell later writes apart: two ticks of the slowest kernel clock, 100 Hz,
// that filesystems stamp files with.
const Racy = 20 * time.Millisecond

// Trees compares two trees by walking both, and returns what differs in the
// order of [Less]. old and new are directories, open for reading or O_PATH,
// and stay open. No symbolic link is followed and no path is too long.
//
// Either tree may change meanwhile: what appears or vanishes during the walk is
// reported as it was met. A file that this process may not read is compared by
// its metadata where neither side may be read: an ordinary user's sandbox
// cannot have written it. Where one side can be read and the other not, the
// comparison fails with ErrDenied.
//
// Cost: a statx of every node on both sides, with two threads. Content is read
// where sizes are equal and Options.SameInodes does not settle it.
// Errors: *errs.Error with the path; ErrDenied, ErrInterrupted, ErrCorrupt
// (an unreadable disk), ErrBusy (a place that never held still).
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

// changes puts what the workers found in order: one entry a path, hard links
// named, and what turned out to be no change dropped.
func (d *walk) changes() []Change {
	all := d.workers[0].found
	for _, w := range d.workers[1:] {
		all = append(all, w.found...)
	}
	slices.SortStableFunc(all, func(a, b found) int {
		switch {
		case Less(a.Path, b.Path):
			return -1
		case Less(b.Path, a.Path):
			return 1
		}
		return cmp.Compare(b.try, a.try) // the latest look first
	})
	all = slices.CompactFunc(all, func(a, b found) bool { return a.Path == b.Path })
	d.times(all)
	changes := make([]Change, 0, len(all))
	for _, f := range all {
		if f.Old != nil || f.New != nil {
			changes = append(changes, f.Change)
		}
	}
	return linked(changes)
}

// times takes the time of directories that were not listed back, where names came
// or went.
func (d *walk) times(all []found) {
	if len(d.named) == 0 {
		return
	}
	moved := map[string]bool{}
	for _, f := range all {
		if (f.Old == nil) != (f.New == nil) {
			dir, _ := split(f.Path)
			moved[dir] = true
		}
	}
	named := map[string]bool{}
	for _, dir := range d.named {
		named[dir] = moved[dir]
	}
	for i := range all {
		if f := &all[i]; named[f.Path] {
			f.What &^= Time
		}
	}
}

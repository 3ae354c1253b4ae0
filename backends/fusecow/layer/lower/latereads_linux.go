package lower

import (
	"maps"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/internal/vfs"
)

// lateReads collects the lower files that were opened after they had changed since a given instant. Each open
// compares one change time.
type lateReads struct {
	since vfs.Timestamp // never changes
	mu    sync.Mutex
	paths map[string]struct{}
	bytes int // total length of paths
}

// maxLate is how many paths of files that changed before they were read are listed, and maxLateBytes their
// total length: the list fits into one message. Further files are not listed.
const maxLate, maxLateBytes = 500, 64 << 10

func (l *lateReads) add(o *Ref, changed vfs.Timestamp) {
	if l.since == (vfs.Timestamp{}) || l.since.After(changed) {
		return
	}
	path := o.Path()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.paths[path]; known || len(l.paths) == maxLate || l.bytes+len(path) > maxLateBytes {
		return
	}
	if l.paths == nil {
		l.paths = map[string]struct{}{}
	}
	l.paths[path] = struct{}{}
	l.bytes += len(path)
}

// LateReads returns the sorted paths of the files that were read after they had changed since the instant
// given to [Open]: at most 500 paths and 64 KiB.
func (t *Tree) LateReads() []string {
	t.late.mu.Lock()
	defer t.late.mu.Unlock()
	return slices.Sorted(maps.Keys(t.late.paths))
}

// takeLateReads copies from another tree into t the list of files that were read after a change. It is called
// when t replaces that tree in the same mounts.
func (t *Tree) takeLateReads(from *Tree) {
	t.late.paths, t.late.bytes = from.late.paths, from.late.bytes
}

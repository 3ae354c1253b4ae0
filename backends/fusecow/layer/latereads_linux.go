package layer

import (
	"maps"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/internal/vfs"
)

// lateReads records the lower files that had changed after an instant and were opened later. It costs one
// comparison, because each open reads the change time anyway.
type lateReads struct {
	since vfs.Timestamp // never changes
	mu    sync.Mutex
	paths map[string]struct{}
	bytes int // total length of paths
}

// These bounds make the list fit into one message.
const maxLate, maxLateBytes = 500, 64 << 10

func (l *lateReads) add(o *lowerRef, changed vfs.Timestamp) {
	if l.since == (vfs.Timestamp{}) || l.since.After(changed) {
		return
	}
	path := o.path()
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

// LateReads returns the sorted paths of the recorded files: at most 500 paths and 64 KiB.
func (f *FS) LateReads() []string {
	f.lateReads.mu.Lock()
	defer f.lateReads.mu.Unlock()
	return slices.Sorted(maps.Keys(f.lateReads.paths))
}

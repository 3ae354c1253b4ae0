package layer

import (
	"maps"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/internal/kernel"
)

// late are files of the tree below that had changed since an instant when their content was
// opened. That costs a comparison, for the change time is asked anyway.
type late struct {
	since kernel.Timestamp // it never changes
	mu    sync.Mutex
	paths map[string]struct{}
	bytes int // of the paths
}

// What is noted has a bound, by which it fits into a message.
const mostLate, mostLateBytes = 500, 64 << 10

func (l *late) note(o *origin, changed kernel.Timestamp) {
	if l.since == (kernel.Timestamp{}) || l.since.After(changed) {
		return
	}
	path := o.path()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.paths[path]; known || len(l.paths) == mostLate || l.bytes+len(path) > mostLateBytes {
		return
	}
	if l.paths == nil {
		l.paths = map[string]struct{}{}
	}
	l.paths[path] = struct{}{}
	l.bytes += len(path)
}

// Late are the paths of what was noted, sorted: 500 of them at most, and 64 KiB.
func (f *FS) Late() []string {
	f.late.mu.Lock()
	defer f.late.mu.Unlock()
	return slices.Sorted(maps.Keys(f.late.paths))
}

package lower

import (
	"sync"

	"github.com/snapfs/snapfs/internal/vfs"
)

// firstReads holds, by path, in which state the content of each lower file was first opened: a program may write
// the file from what it read then, however much later. It is full at maxReads files.
type firstReads struct {
	mu   sync.Mutex
	seen map[string]Version
}

// A Version identifies one state of one lower file.
type Version struct {
	Ino   uint64
	CTime vfs.Timestamp
}

// maxReads bounds the paths, which take about 150 bytes each.
const maxReads = 100_000

// add records the state of the file at path, if it is opened for the first time.
func (r *firstReads) add(path string, st *vfs.Stat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.seen[path]; known || len(r.seen) == maxReads {
		return
	}
	if r.seen == nil {
		r.seen = map[string]Version{}
	}
	r.seen[path] = Version{st.Ino, st.CTime}
}

// ReadBefore returns the version in which the lower file at path was first opened, if the file has another one now:
// now is its state, nil if it is gone. The zero Version means that the version is not known, because too many files
// were opened, and that the file may have changed.
func (t *Tree) ReadBefore(path string, now *vfs.Stat) (Version, bool) {
	t.reads.mu.Lock()
	defer t.reads.mu.Unlock()
	v, known := t.reads.seen[path]
	switch {
	case known:
		return v, now == nil || v != Version{now.Ino, now.CTime}
	case len(t.reads.seen) < maxReads:
		return v, false
	}
	return v, now == nil || !t.late.since.After(now.CTime)
}

// TakeFirstReads copies the first reads of another tree into t, which continues them.
func (t *Tree) TakeFirstReads(from *Tree) { t.reads.seen = from.reads.seen }

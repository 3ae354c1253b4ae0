package lower

import (
	"sync"

	"github.com/snapfs/snapfs/internal/vfs"
)

// firstReads remembers, by path, in which state each lower file was when its content was first opened: a
// program may write the file from the bytes it read then, however much later. After maxReads files it adds no
// more.
type firstReads struct {
	mu   sync.Mutex
	seen map[string]Version
}

// A Version identifies one state of one lower file, such as the one that the fork has read, by inode number
// and change time.
type Version struct {
	Ino   uint64
	CTime vfs.Timestamp
}

// maxReads is the largest number of paths for which [firstReads] remembers the version that was first read.
// Each takes about 150 bytes. [Tree.ReadBefore] returns an unknown version for files opened after that.
const maxReads = 100_000

// add records the state st of the lower file at path, if this file is opened for the first time.
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

// ReadBefore returns the version of the lower file at path that the fork has seen, if that is not the present
// version. Otherwise it returns false. now is the file's present state, nil if it is gone. shown is the state that
// the kernel has cached since it looked the file up: it reads no byte beyond that size, and a program appends there.
// The Mode of shown is 0 if the fork has changed the file's attributes. If now differs from shown, the version is
// that of shown, else that in which the file was first opened. The zero Version means that the version is not known,
// because too many files were opened or no state was recorded, and that the file may have changed.
func (t *Tree) ReadBefore(path string, now *vfs.Stat, shown vfs.Stat) (Version, bool) {
	if now != nil && (shown.Size != now.Size || shown.Mode != 0 &&
		(shown.Mode != now.Mode || shown.UID != now.UID || shown.GID != now.GID || shown.MTime != now.MTime)) {
		if shown.CTime == (vfs.Timestamp{}) {
			return Version{}, true
		}
		return Version{shown.Ino, shown.CTime}, true
	}
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

// takeFirstReads copies from another tree into t the record of which version of each file was first read. It
// is called when t replaces that tree in the same mounts.
func (t *Tree) takeFirstReads(from *Tree) { t.reads.seen = from.reads.seen }

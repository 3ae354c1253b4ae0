//go:build linux

package overlay

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// An unchangedForks remembers forks that had no change when their changes were last listed. After each command a
// supervisor lists the changes of all trees of its sandbox, and most commands change few of them.
type unchangedForks struct {
	mu sync.Mutex
	of map[forkBase][]fileState
}

// A forkBase identifies a comparison: of a fork, by the path of its record, with the snapshot base.
type forkBase struct{ record, base string }

// A fileState is a path with the attributes that the file there had at some moment.
type fileState struct {
	path string
	st   vfs.Stat
}

// statSettled returns the attributes of the files at paths. ok is false if one cannot be read, or has changed so
// recently that its next change may leave the same change time.
func statSettled(paths ...string) (all []fileState, ok bool) {
	for _, path := range paths {
		st, err := vfs.Lstat(unix.AT_FDCWD, path)
		if err != nil || !st.Settled(time.Now()) {
			return nil, false
		}
		all = append(all, fileState{path, st})
	}
	return all, true
}

// has reports whether the fork is known to be unchanged: add was called for it, and the files of that call have not
// changed since. Cost: a system call for each of the files.
func (u *unchangedForks) has(fork forkBase) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	seen, ok := u.of[fork]
	for _, s := range seen {
		st, err := vfs.Lstat(unix.AT_FDCWD, s.path)
		if ok = err == nil && st.Dev == s.st.Dev && st.Ino == s.st.Ino && st.CTime == s.st.CTime; !ok {
			delete(u.of, fork)
			break
		}
	}
	return ok
}

// add notes that a fork has no change. seen are the states, read before that was found, of its record, its upper layer
// and the root of the base: any change of the fork changes one of them, as long as the upper layer has no entries. If
// it has some, add does nothing.
func (u *unchangedForks) add(fork forkBase, seen []fileState, upper string) {
	if !isEmpty(upper) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = map[forkBase][]fileState{}
	}
	u.of[fork] = seen
}

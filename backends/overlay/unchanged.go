//go:build linux

package overlay

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// An unchangedForks remembers forks that had no change when their changes were last listed. After each command the
// supervisor of a sandbox lists the changes of all its trees, most of which no command ever changes.
type unchangedForks struct {
	mu sync.Mutex
	of map[forkSince][]sight
}

// A forkSince is a fork, by the path of its record, and the snapshot with which it is compared.
type forkSince struct{ record, base string }

// A sight is a file as it was seen.
type sight struct {
	path string
	st   vfs.Stat
}

// see returns the files at paths as they are now. ok is false if one cannot be seen, or has changed so short a time
// ago that its change time may not tell the next change.
func see(paths ...string) (all []sight, ok bool) {
	for _, path := range paths {
		st, err := vfs.Lstat(unix.AT_FDCWD, path)
		if err != nil || !st.Settled(time.Now()) {
			return nil, false
		}
		all = append(all, sight{path, st})
	}
	return all, true
}

// has reports whether the fork is known to be unchanged: nothing has changed what was seen then.
func (u *unchangedForks) has(fork forkSince) bool {
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

// add notes that a fork had no change after seen was seen: its record, its upper layer and the root of the base. A
// change anywhere in an upper layer without entries makes an entry in it.
func (u *unchangedForks) add(fork forkSince, seen []sight, upper string) {
	if !isEmpty(upper) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = map[forkSince][]sight{}
	}
	u.of[fork] = seen
}

package mount

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
)

// Switch replaces the served filesystem by next, which has other layers over the same lower, and closes the
// old one. Users of the mounts then see next, even in open or mapped files; see [layer.FS.HandOver]. Nobody
// may write meanwhile, and everything must be flushed before.
//
// Switch calls then when all that can be undone is done. After an error before that point the old filesystem
// stays, and only cached names, and mounts on them, may be gone. Later errors are those of mounting again and
// of closing the old one.
func (s *Server) Switch(next *layer.FS, then func() error) error {
	s.forgetNames(s.f.ChangedNames(next))
	s.waitForget() // so that only inodes in use are handed over
	was := s.f
	names, stale, err := s.handOver(next, then)
	for began := time.Now(); errors.Is(err, layer.ErrOtherFile) && time.Since(began) < forgetWait; {
		time.Sleep(time.Millisecond) // the kernel may be about to forget that inode
		names, stale, err = s.handOver(next, then)
	}
	if err != nil {
		return err
	}
	s.forgetNames(names)
	s.forgetPages(stale)
	return errors.Join(s.refreshLengths(was, stale), was.Close())
}

// handOver replaces the served filesystem by next, and returns the names and inodes that the kernel has to
// drop from its caches. then is as for Switch.
func (s *Server) handOver(next *layer.FS, then func() error) (names []logfile.Name, stale []uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names = s.f.ChangedNames(next) // readers may have looked up more meanwhile
	if stale, err = s.f.HandOver(next, then); err == nil {
		s.f = next
	}
	return names, stale, err
}

// forgetWait bounds the wait for the kernel to forget unused inodes before the mounts show another state. The
// switch copies the content of inodes that the kernel still knows then.
const forgetWait = 100 * time.Millisecond

// forgetNames makes the kernel drop these names from its cache, since another state of the tree is served
// now. Dropping an unknown name does nothing.
func (s *Server) forgetNames(names []logfile.Name) {
	for _, n := range names {
		s.server.EntryNotify(n.Dir, n.Name)
	}
}

// waitForget waits until the kernel has forgotten the unused inodes whose names were dropped. The kernel
// sends FORGET for each, but no message at the end, so waitForget returns when the number of inodes stops
// falling.
func (s *Server) waitForget() {
	const step = time.Millisecond
	for waited, before := time.Duration(0), -1; waited < forgetWait && before != s.f.InodeCount(); waited += step {
		before = s.f.InodeCount()
		time.Sleep(step)
	}
}

// forgetPages makes the kernel drop cached attributes, pages and listings of these inodes. The kernel
// silently keeps a page that was written to since the last flush.
func (s *Server) forgetPages(inodes []uint64) {
	for _, id := range inodes {
		s.server.InodeNotify(id, 0, 0)
	}
}

// refreshLengths makes the kernel learn the new sizes of the inodes stale, which differ from those in the
// filesystem was. The kernel requests dropped attributes again, but uses the old size for appending and for
// mapped files. So each file gets an unguessable name for a moment, and refreshLengths looks it up.
func (s *Server) refreshLengths(was *layer.FS, stale []uint64) error {
	changed := slices.DeleteFunc(slices.Clone(stale), func(id uint64) bool {
		a, err := was.Attr(id)
		b, gone := s.f.Attr(id)
		return err != nil || gone != nil || a.Size == b.Size || b.Mode&unix.S_IFMT != unix.S_IFREG
	})
	if len(changed) == 0 {
		return nil
	}
	root, err := s.MountAgain(unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return err
	}
	defer root.Close()
	byNumber := fmt.Sprintf(".snapfs-%016x%016x-", rand.Uint64(), rand.Uint64())
	s.setNumberPrefix(byNumber)
	defer s.setNumberPrefix("")
	for _, id := range changed {
		name := byNumber + strconv.FormatUint(id, 16)
		var st unix.Stat_t
		serr := unix.Fstatat(int(root.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		s.server.EntryNotify(layer.RootID, name)
		if !errors.Is(serr, unix.ESTALE) { // ESTALE: the inode is no longer in use
			err = errors.Join(err, serr)
		}
	}
	return err
}

// setNumberPrefix makes each inode reachable under a name in the root that consists of the prefix byNumber
// and its inode number; "" ends that. Looking such a name up makes the kernel learn the inode's new size, see
// [Server.refreshLengths].
func (s *Server) setNumberPrefix(byNumber string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numberPrefix = byNumber
}

// lookupByNumber returns the inode for a name in the root directory dir that consists of numberPrefix and an
// inode number, by which the server makes the kernel learn new sizes. ok is false for other names.
func (s *served) lookupByNumber(dir uint64, name string) (e layer.Entry, ok bool, err error) {
	if s.numberPrefix == "" || dir != layer.RootID {
		return e, false, nil
	}
	text, ok := strings.CutPrefix(name, s.numberPrefix)
	if !ok {
		return e, false, nil
	}
	id, err := strconv.ParseUint(text, 16, 64)
	if err == nil {
		e, err = s.f.Relookup(id)
	}
	return e, true, err
}

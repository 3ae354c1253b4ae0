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
)

// Switch has next, which has other layers over the same tree, answer from here on in the place of
// the filesystem that is served, and that is closed. Who uses a mount finds what next has, in files that he
// has open or mapped as well, see [layer.FS.HandOver]. Nobody may write to a mount meanwhile, and
// what was written is to be flushed before. Then is called when nothing can keep it from happening. Errors:
// those of HandOver and of then, after which f goes on, and only names may have been forgotten, with what was mounted
// on them; after then, those of one more mount, and of closing.
func (s *Server) Switch(next *layer.FS, then func() error) error {
	s.forgetNames(s.f.ChangedNames(next))
	s.waitForget() // so that only what is in use is handed over
	was := s.f
	names, stale, err := s.handOver(next, then)
	for began := time.Now(); errors.Is(err, layer.ErrOtherFile) && time.Since(began) < forgetWait; {
		time.Sleep(time.Millisecond) // the kernel may be about to tell that it has let go of that one
		names, stale, err = s.handOver(next, then)
	}
	if err != nil {
		return err
	}
	s.forgetNames(names)
	s.forgetPages(stale)
	return errors.Join(s.refreshLengths(was, stale), was.Close())
}

// handOver has next answer, and says which names and pages the kernel has to forget.
func (s *Server) handOver(next *layer.FS, then func() error) (names []layer.Name, stale []uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names = s.f.ChangedNames(next) // who only looks may have asked again, and in other directories
	if stale, err = s.f.HandOver(next, then); err == nil {
		s.f = next
	}
	return names, stale, err
}

// forgetting is how long the kernel may take to tell what it has let go of.
const forgetWait = 100 * time.Millisecond

// forgetNames has the kernel look names up again. One that it does not know it need not forget.
func (s *Server) forgetNames(names []layer.Name) {
	for _, n := range names {
		s.server.EntryNotify(n.Dir, n.Name)
	}
}

// letForget waits until the kernel has let go of nodes that it was told to forget the names of,
// and that nobody uses. It tells of each, and not when it has done.
func (s *Server) waitForget() {
	const step = time.Millisecond
	for waited, before := time.Duration(0), -1; waited < forgetWait && before != s.f.InodeCount(); waited += step {
		before = s.f.InodeCount()
		time.Sleep(step)
	}
}

// forgetPages has the kernel forget the attributes, pages and lists of nodes. It says nothing of a page
// that it cannot take: one that was written to since all was flushed.
func (s *Server) forgetPages(nodes []uint64) {
	for _, id := range nodes {
		s.server.InodeNotify(id, 0, 0)
	}
}

// tellLengths has the kernel hear how long files are whose length was another one in the filesystem that
// was. It asks for attributes that it has forgotten, but goes by the length that it knows where somebody appends
// to a file, or has it mapped. Each file gets a name for a moment, which nobody can guess, to be looked up by.
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
		if !errors.Is(serr, unix.ESTALE) { // nobody knows it any more
			err = errors.Join(err, serr)
		}
	}
	return err
}

// callBy has files be looked up by a name that begins so, and goes on with their number; empty: no more.
func (s *Server) setNumberPrefix(byNumber string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numberPrefix = byNumber
}

// called answers with the file that a name in the root stands for, where it is one of tellLengths.
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

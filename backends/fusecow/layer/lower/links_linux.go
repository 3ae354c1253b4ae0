package lower

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A LinkSearch finds the hard links, in the lower, of inodes of which one name is known, so that a change of
// the inode can be shown at all its names. It lists the directories nearest to the known names first, and
// ends when all links are found. It stats only the entries whose inode number is wanted.
type LinkSearch struct {
	tree *Tree
	// wanted holds the inodes by their number in directory entries.
	wanted map[uint64]*wantedLinks
	// open counts the wanted inodes that may have further names.
	open    int
	devices map[uint32]bool // of the wanted inodes
	// done holds the directories whose whole subtree is searched, without those below them.
	done map[string]bool
	// found is called with each name.
	found func(name *Ref) error
	// Entries and Time bound a run: the directory entries it lists, and how long it takes. A run
	// that reaches a bound ends without an error and leaves the other names out.
	Entries int
	Time    time.Duration
	end     time.Time
}

// wantedLinks is an inode with several hard links whose further names a [LinkSearch] looks for.
type wantedLinks struct {
	known   *Ref
	missing int // names in the lower, among which may be some that layers hide
}

// errAllFound and errBound end a search for hard links: all are found, or it has listed too many entries or
// taken too long.
var (
	errAllFound = errors.New("all links are found")
	errBound    = errors.New("the search has reached a bound")
)

// The bounds of a new search for hard links: directory entries listed, and time. Finding one name on a
// machine with millions of files would take minutes, or the name is not there. A search that reaches a bound
// ends without an error, and has reported only the links found so far.
const (
	maxEntries = 200_000
	maxTime    = time.Second
)

// NewLinkSearch returns a search for hard links in tree that calls found with each name. An error of found
// ends the search, and Run returns it.
func NewLinkSearch(tree *Tree, found func(name *Ref) error) *LinkSearch {
	return &LinkSearch{
		tree: tree, wanted: map[uint64]*wantedLinks{}, devices: map[uint32]bool{}, done: map[string]bool{}, found: found,
		Entries: maxEntries, Time: maxTime,
	}
}

// Want adds the inode that has the name known to those whose further names Run searches for. missing is how
// many names of the inode are unknown; it counts only if the name known is gone from the lower, since
// otherwise the link count of the file there says it. Want returns false if the inode cannot be searched for:
// its number in the directory differs from the one that stat(2) returns, as on some stacked filesystems.
func (s *LinkSearch) Want(known *Ref, missing int) (bool, error) {
	if w := s.wanted[known.Ino]; w != nil {
		return w.known.Identity == known.Identity, nil
	}
	w := &wantedLinks{known: known, missing: missing}
	st, err := s.tree.Stat(known.Dir, known.Name)
	switch {
	case err == nil && s.tree.IdentityOf(&st) == known.Identity:
		w.missing = int(st.Nlink) - 1
		same, err := s.listedAs(known)
		if !same || err != nil {
			return false, err
		}
	case err != nil && !unreachable(err):
		return false, err
	}
	s.wanted[known.Ino] = w
	s.devices[known.Dev] = true
	if w.missing > 0 {
		s.open++
	}
	return true, nil
}

// listedAs reports whether the directory of name lists that name with the inode number that stat(2) returned.
// On some stacked filesystems it does not, and a search by number is useless.
func (s *LinkSearch) listedAs(name *Ref) (bool, error) {
	list, err := s.tree.List(name.Dir)
	if err != nil {
		return false, ignoreUnreachable(err)
	}
	for _, e := range list {
		if e.Name == name.Name {
			return e.Ino == name.Ino, nil
		}
	}
	return false, nil
}

// Run searches for the missing hard links below the directories of the known names, then below their parents,
// and so on to the root. It lists each directory once. Cost: in proportion to the entries near the names if
// all links are there, else to those of the whole lower, up to the bounds. Directories that were removed
// meanwhile or that this process may not list are left out.
func (s *LinkSearch) Run() error {
	s.end = time.Now().Add(s.Time)
	tops := map[string]bool{}
	for _, w := range s.wanted {
		tops[w.known.Dir.Path()] = true
	}
	for s.open > 0 && len(tops) > 0 {
		above := map[string]bool{}
		for top := range tops {
			if err := s.searchBelow(top); errors.Is(err, errAllFound) || errors.Is(err, errBound) {
				return nil
			} else if err != nil {
				return err
			}
			if top != "." {
				above[path.Dir(top)] = true
			}
		}
		tops = above
	}
	return nil
}

// searchBelow searches the directory at path top and all below it for hard links, except directories that
// were already searched.
func (s *LinkSearch) searchBelow(top string) error {
	for at := top; ; at = path.Dir(at) {
		if s.done[at] {
			return nil
		}
		if at == "." {
			break
		}
	}
	todo := []*Ref{RefAt(map[string]*Ref{".": {Name: "."}}, top)}
	for len(todo) > 0 {
		dir := todo[len(todo)-1]
		below, err := s.searchDir(dir)
		if err != nil {
			return err
		}
		todo = append(todo[:len(todo)-1], below...)
	}
	for at := range s.done {
		if top == "." || strings.HasPrefix(at, top+"/") {
			delete(s.done, at)
		}
	}
	s.done[top] = true
	return nil
}

// searchDir searches the entries of one directory for hard links, and returns the directories in it that were
// not searched yet. It does nothing for a directory on a filesystem without wanted inodes.
func (s *LinkSearch) searchDir(dir *Ref) (below []*Ref, err error) {
	if dir.Dir != nil {
		st, err := s.tree.Stat(dir.Dir, dir.Name)
		if err != nil || !s.devices[s.tree.IdentityOf(&st).Dev] {
			return nil, ignoreUnreachable(err)
		}
	}
	list, err := s.tree.List(dir)
	if err != nil {
		return nil, ignoreUnreachable(err)
	}
	if s.Entries -= len(list); s.Entries < 0 || time.Now().After(s.end) {
		return nil, errBound
	}
	at := dir.Path()
	for _, e := range list {
		switch {
		case e.Type == unix.DT_DIR && !s.done[path.Join(at, e.Name)]:
			below = append(below, &Ref{Dir: dir, Name: e.Name})
		case e.Type != unix.DT_DIR && s.wanted[e.Ino] != nil:
			if err := s.check(s.wanted[e.Ino], dir, e.Name); err != nil {
				return nil, err
			}
		}
	}
	return below, nil
}

// check calls found, the callback of the search, with the entry called name in dir, if that is a further hard
// link of the wanted inode w.
func (s *LinkSearch) check(w *wantedLinks, dir *Ref, name string) error {
	if w.known.IsEntry(dir, name) {
		return nil
	}
	st, err := s.tree.Stat(dir, name)
	if err != nil {
		return ignoreUnreachable(err)
	}
	if s.tree.IdentityOf(&st) != w.known.Identity {
		return nil
	}
	if err := s.found(&Ref{Dir: dir, Name: name, Identity: w.known.Identity}); err != nil {
		return err
	}
	if w.missing--; w.missing == 0 {
		s.open--
	}
	if s.open > 0 {
		return nil
	}
	return errAllFound
}

// unreachable reports whether err means that the search for hard links finds nothing at a path: the path is
// gone, or this process may not look there.
func unreachable(err error) bool {
	for _, kind := range []error{fs.ErrNotExist, fs.ErrPermission, unix.ESTALE, unix.ENOTDIR, unix.ELOOP} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func ignoreUnreachable(err error) error {
	if unreachable(err) {
		return nil
	}
	return err
}

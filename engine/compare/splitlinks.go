package compare

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Bounds of a search for the other names (hard links) of changed files: directory entries read, and time.
// They may be small, since the search only adds names to a warning.
const (
	maxLinkEntries = 200_000
	maxLinkTime    = 2 * time.Second
)

// A SplitLink is a changed file of which some names (hard links) are not among the changes. An
// overlay copies a file up under one name alone, so that the others keep the old content.
type SplitLink struct {
	// Path is the changed name. Others are the other names that were found below Root; all are
	// absolute.
	Path   string   `json:"path"`
	Others []string `json:"others,omitempty"`
	// Renamed is the former name if the sandbox renamed the file and changed nothing else. An overlay then
	// makes the new name a file of its own.
	Renamed string `json:"renamed,omitempty"`
	// Missing is the number of further names, which were not found. Cut is set if the search ended
	// at one of its bounds.
	Missing int    `json:"missing,omitempty"`
	Cut     bool   `json:"cut,omitempty"`
	Root    string `json:"root"`
}

// Why returns the message that the sandbox changed only some names of a hard-linked file, to follow "PATH: ".
func (s *SplitLink) Why() string {
	if len(s.Others) > 0 {
		other := pathlist.Printable(s.Others[0])
		if n := len(s.Others) + s.Missing - 1; n > 0 {
			other += " and " + strconv.Itoa(n) + " more"
		}
		if s.Renamed != "" {
			return "it was one file with " + other + " (hard links) as " + pathlist.Printable(s.Renamed) + ", and the sandbox made it a file of its own"
		}
		return "it is one file with " + other + " (hard links), and the sandbox changed this name alone"
	}
	where := "below " + pathlist.Printable(s.Root) + " is none of them"
	if s.Cut {
		where = "the search for them below " + pathlist.Printable(s.Root) + " was cut short"
	}
	return "it is one file with " + strconv.Itoa(s.Missing) + " more (hard links), which a promotion would leave as before; " + where
}

// Hints returns the shell commands by which the user joins or separates the names of the file in the sandbox
// called name, or leaves the change out of a promotion.
func (s *SplitLink) Hints(name string) []string {
	leave := "snapfs promote " + name + " --theirs " + errs.Quoted(s.Path) + "   # leave this change out"
	if s.Renamed != "" {
		return []string{
			"snapfs exec " + name + " -- ln -f " + errs.Quoted(s.Others[0]) + " " + errs.Quoted(s.Path) + "   # keep it one file",
			"snapfs promote " + name + " --mine " + errs.Quoted(s.Path) + "   # make it two files",
			leave,
		}
	}
	if len(s.Others) == 0 {
		return []string{"find / -xdev -samefile " + errs.Quoted(s.Path) + "   # finds the other names", leave}
	}
	return []string{
		"snapfs exec " + name + " -- ln -f " + errs.Quoted(s.Path) + " " + errs.Quoted(s.Others[0]) + "   # change all names of it",
		"snapfs exec " + name + " -- touch " + errs.Quoted(s.Others[0]) + "   # make it two files",
		leave,
	}
}

// FindSplit fills in Split, the changed files with unchanged hard links, for the workspace's part.
//
// Cost: nothing if no changed file has other names; else a walk in the part's old state, within the bounds
// maxLinkEntries and maxLinkTime. Error: ErrInterrupted.
func (c *Changes) FindSplit(ctx context.Context) (err error) {
	for i := range c.Parts {
		if p := &c.Parts[i]; p.Workspace && err == nil {
			p.Split, err = FindSplitLinks(ctx, p.Old, p.Root, p.Changes, func(c *diff.Change) *diff.Node { return c.Old })
		}
	}
	return err
}

type linkID struct{ dev, ino uint64 }

// FindSplitLinks returns the changed and renamed files that have other names (hard links) which are not among the
// changes. It searches for these names in the tree that is open at root, with the absolute path at. old
// returns the node that this tree has at the path of a change, or nil. All names below a renamed directory
// are changed, also those that its change stands for ([diff.Moved]).
func FindSplitLinks(ctx context.Context, root *os.File, at string, changes []diff.Change, old func(c *diff.Change) *diff.Node) ([]SplitLink, error) {
	s := newLinkSearch(ctx, root)
	for i := range changes {
		if moved := changes[i].Moved; moved != nil {
			s.moved = append(s.moved, moved.From)
		}
		if n := old(&changes[i]); n != nil && n.NLink > 1 && !n.Mode.IsDir() {
			s.changed[changes[i].Path] = true
			s.names[linkID{n.Dev, n.Ino}]++
		}
	}
	split, renamed := s.wantSplit(changes, old)
	if len(split) == 0 {
		return nil, nil
	}
	cut, err := s.run()
	if err != nil {
		return nil, errs.With("comparing", at, err)
	}
	var all []SplitLink
	for _, c := range split {
		n := old(c)
		id := linkID{n.Dev, n.Ino}
		if s.names[id] >= n.NLink {
			continue // all other names are in renamed directories
		}
		l := SplitLink{Path: filepath.Join(at, c.Path), Missing: int(n.NLink-s.names[id]) - len(s.others[id]), Cut: cut, Root: at}
		l.Missing = max(l.Missing, 0)
		for _, other := range s.others[id] {
			l.Others = append(l.Others, filepath.Join(at, other))
		}
		if to := renamed[c]; to != "" {
			l.Path, l.Renamed = filepath.Join(at, to), filepath.Join(at, c.Path)
		}
		if l.Renamed == "" || len(l.Others) > 0 { // names outside root do not see a rename
			all = append(all, l)
		}
	}
	return all, nil
}

// wantSplit returns the changes that split a hard link from names which are not among the changes, and has the search
// find these names. renamed maps the deletion of a name to the new path if the sandbox renamed it, and an overlay made
// the new name a file of its own.
func (s *linkSearch) wantSplit(changes []diff.Change, old func(c *diff.Change) *diff.Node) (split []*diff.Change, renamed map[*diff.Change]string) {
	renamed = map[*diff.Change]string{}
	added := addedAlone(changes)
	for i := range changes {
		c := &changes[i]
		n := old(c)
		if !s.changed[c.Path] || c.Kind == diff.Modified && c.What&^diff.Links == 0 {
			continue
		}
		known := s.names[linkID{n.Dev, n.Ino}]
		if c.Kind != diff.Modified {
			renamed[c] = added[renameKeyOf(c.Old)]
		}
		if known >= n.NLink || c.Kind != diff.Modified && renamed[c] == "" {
			continue
		}
		split = append(split, c)
		if s.wanted[n.Ino] == 0 {
			s.want(n.Ino, int(n.NLink-known))
		}
		s.dirs = append(s.dirs, path.Dir(c.Path))
	}
	return split, renamed
}

// A linkSearch is one search of a tree for the other names (hard links) of changed files; newLinkSearch makes it.
type linkSearch struct {
	ctx  context.Context
	root *os.File
	// changed are the names that need not be found, and names their number by file.
	changed map[string]bool
	names   map[linkID]uint32
	// wanted is, by inode number, how many names are missing; open counts those that are not 0.
	wanted map[uint64]int
	open   int
	others map[linkID][]string
	// moved are the renamed directories of which the changes do not list all entries.
	moved []string
	// dirs are the directories of changed names.
	dirs    []string
	entries int
	end     time.Time
	listed  map[string]bool
	// shallow is set to search the directories of changed names only, and unbounded for a search without bounds.
	shallow, unbounded bool
}

func newLinkSearch(ctx context.Context, root *os.File) *linkSearch {
	return &linkSearch{
		ctx: ctx, root: root, changed: map[string]bool{}, names: map[linkID]uint32{}, wanted: map[uint64]int{}, others: map[linkID][]string{},
	}
}

// want notes that the search must find n further names of the file with the inode number ino.
func (s *linkSearch) want(ino uint64, n int) {
	if s.wanted[ino] == 0 {
		s.open++
	}
	s.wanted[ino] += n
}

// run searches the renamed directories and those of the changed names first, and then the whole tree, until
// all names are found. cut is true if it ended at one of the bounds maxLinkEntries and maxLinkTime. These do
// not hold for renamed directories, which the comparison has read, too, and not for an unbounded search.
func (s *linkSearch) run() (cut bool, err error) {
	s.listed = map[string]bool{}
	for todo := slices.Clone(s.moved); len(todo) > 0 && s.open > 0; {
		below, err := s.list(todo[0])
		if err != nil {
			return false, err
		}
		todo = append(todo[1:], below...)
	}
	s.end, s.entries = time.Now().Add(maxLinkTime), 0
	for _, dir := range s.dirs {
		if _, err := s.list(dir); err != nil {
			return false, err
		}
	}
	for todo := []string{"."}; len(todo) > 0 && s.open > 0 && !s.shallow; {
		if !s.unbounded && (s.entries > maxLinkEntries || time.Now().After(s.end)) {
			return true, nil
		}
		below, err := s.list(todo[0])
		if err != nil {
			return false, err
		}
		todo = append(todo[1:], below...)
	}
	return false, nil
}

// list reads the directory dir, notes those names in it that are hard links of changed files, and returns its
// subdirectories. It ignores a directory that it cannot read.
func (s *linkSearch) list(dir string) (below []string, err error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	f, err := vfs.OpenBeneath(int(s.root.Fd()), dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil // gone, or not readable for this user
	}
	defer f.Close()
	again := s.listed[dir]
	s.listed[dir] = true
	err = vfs.EachEntry(int(f.Fd()), func(entry []byte, ino uint64, typ uint8) error {
		s.entries++
		name := path.Join(dir, string(entry))
		switch {
		case typ == unix.DT_DIR && slices.Contains(s.moved, name): // searched by itself
		case typ == unix.DT_DIR:
			below = append(below, name)
		case !again && s.wanted[ino] > 0 && !s.changed[name]:
			st, err := vfs.Lstat(int(f.Fd()), string(entry))
			id := linkID{st.Dev, st.Ino}
			if err != nil || s.names[id] == 0 {
				return nil //nolint:nilerr // gone, or another file of this number
			}
			if slices.ContainsFunc(s.moved, func(dir string) bool { return diff.Inside(name, dir) }) {
				s.names[id]++
			} else {
				s.others[id] = append(s.others[id], name)
			}
			if s.wanted[ino]--; s.wanted[ino] == 0 {
				s.open--
			}
		}
		return nil
	})
	return below, err
}

package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A search looks for the places of secrets on the host, or in a sandbox's copy of it, and collects those that
// exist and, if later is set, those that do not.
type search struct {
	// at maps a path to where it can be read.
	at    func(string) string
	later bool
	// found are the places that exist. missing are those that do not, each cut off behind its first element that
	// does not exist. unsure are paths that do not exist either, or are links to nothing, or files.
	found, unsure []string
	missing       []absentNames
	dirs          []string // the directories among found and above them; none is a link
}

// absentNames are names of possible secrets that do not exist yet in the directory dir, which does exist. A
// sandbox's live tree, which shows the real files, hides them in case they appear.
type absentNames struct {
	dir   string
	names []string
	only  []string // unless nil, all names in dir are hidden but these, and names is empty
}

// look looks for the paths names of possible secrets, relative to dir and sorted, and adds them to found or, if later
// is set, to missing or unsure. It lists dir, and each directory in it that several names lie in, at most once. An
// element * of a name stands for every entry; such a name is never missing as long as its directory exists.
func (s *search) look(dir string, names []string) {
	if len(names) == 1 && !strings.Contains(names[0], "*") {
		s.one(dir, names[0])
		return
	}
	if few := firstElements(names, fewElements); few != nil {
		s.lookFor(few, dir, names)
		return
	}
	entries, err := os.ReadDir(s.at(dir))
	if absent(err) {
		s.addUnsure(dir)
		return
	}
	if err != nil && !Privileged() && !enterable(s.at(dir)) { // a command runs as this user and cannot read it either
		return
	}
	if err != nil { // it cannot be listed
		for _, name := range names {
			if !strings.Contains(name, "*") {
				s.one(dir, name)
			}
		}
		return
	}
	every, any := pathlist.Below(names, "*") // most directories have fewer entries than there are names
	for _, e := range entries {
		rest, is := pathlist.Below(names, e.Name())
		if is || any || len(rest) > 0 {
			s.record(filepath.Join(dir, e.Name()), is || any, e.IsDir())
		}
		for _, deeper := range [][]string{rest, every} {
			if len(deeper) > 0 {
				s.look(filepath.Join(dir, e.Name()), deeper)
			}
		}
	}
	if s.later {
		s.addMissing(dir, names, entries)
	}
}

// record adds path, an entry of a listed directory, to found if it is hidden, and to dirs if it is a directory.
func (s *search) record(path string, isHidden, isDir bool) {
	if isHidden {
		s.found = append(s.found, path)
	}
	if isDir {
		s.dirs = append(s.dirs, path)
	}
}

// fewElements is how many entries of a directory are looked up by name, which costs less than listing the directory.
const fewElements = 6

// firstElements returns the first element of each of names, each once, or nil if there are more than most, or one is *.
func firstElements(names []string, most int) (firsts []string) {
	for _, name := range names {
		first, _, _ := strings.Cut(name, "/")
		switch {
		case slices.Contains(firsts, first):
		case first == "*" || len(firsts) == most:
			return nil
		default:
			firsts = append(firsts, first)
		}
	}
	return firsts
}

// lookFor does what look does without listing dir: it looks up the entries firsts, the first elements of names.
func (s *search) lookFor(firsts []string, dir string, names []string) {
	lacks := absentNames{dir: dir}
	for _, first := range firsts {
		path := filepath.Join(dir, first)
		switch st, err := vfs.Lstat(unix.AT_FDCWD, s.at(path)); {
		case err == nil && st.IsDir():
			s.dirs = append(s.dirs, path)
		case absent(err):
			lacks.names = append(lacks.names, first)
			continue
		case errors.Is(err, fs.ErrPermission): // a command runs as this user and cannot reach it either
			continue
		}
		rest, is := pathlist.Below(names, first)
		if is {
			s.found = append(s.found, path)
		}
		if len(rest) > 0 {
			s.look(path, rest)
		}
	}
	switch info, err := os.Stat(s.at(dir)); {
	case len(lacks.names) == 0 || !s.later:
	case err == nil && info.IsDir():
		s.missing = append(s.missing, lacks)
	default:
		s.addUnsure(dir)
	}
}

// addMissing adds to missing the first elements of names, paths of possible secrets relative to dir, that are not among
// entries, those of dir.
func (s *search) addMissing(dir string, names []string, entries []os.DirEntry) {
	last, lacks := "", absentNames{dir: dir, names: make([]string, 0, len(names))}
	for _, name := range names {
		first, _, _ := strings.Cut(name, "/")
		if first == last || first == "*" {
			continue
		}
		last = first
		if _, ok := slices.BinarySearchFunc(entries, first, func(e os.DirEntry, name string) int { return strings.Compare(e.Name(), name) }); !ok {
			lacks.names = append(lacks.names, first)
		}
	}
	if len(lacks.names) > 0 {
		s.missing = append(s.missing, lacks)
	}
}

// one looks for one path that may hold a secret, name in the directory dir, and adds it to found if it exists, else
// to unsure, because it may appear later.
func (s *search) one(dir, name string) {
	path := filepath.Join(dir, name)
	_, err := os.Lstat(s.at(path))
	if !absent(err) {
		s.found = append(s.found, path)
		return
	}
	s.addUnsure(path)
}

// addUnsure adds path, which does not exist or leads nowhere, to unsure.
func (s *search) addUnsure(path string) {
	if s.later {
		s.unsure = append(s.unsure, path)
	}
}

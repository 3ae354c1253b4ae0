package hostfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A search looks for the places of secrets on the host, or in a sandbox's copy of it, and collects those that
// exist and those that do not.
type search struct {
	// at maps a path to where it can be read.
	at func(string) string
	// found are the places that exist. missing are those that do not, each cut off behind its first element that
	// does not exist. unsure are paths that do not exist either, or are links to nothing, or files.
	found, unsure []string
	missing       []absentNames
}

// absentNames are names of possible secrets that do not exist yet in the directory dir, which does exist. A
// sandbox's live tree, which shows the real files, hides them in case they appear.
type absentNames struct {
	dir   string
	names []string
}

// look looks for the paths names of possible secrets, relative to dir and sorted, and adds them to found,
// missing or unsure. It lists dir, and each directory in it that several names lie in, only once. An element
// * of a name stands for every entry; such a name is never missing as long as its directory exists.
func (s *search) look(dir string, names []string) {
	if len(names) == 1 && !strings.Contains(names[0], "*") {
		s.one(dir, names[0])
		return
	}
	entries, err := os.ReadDir(s.at(dir))
	if absent(err) {
		s.unsure = append(s.unsure, dir)
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
	every, any := under(names, "*") // most directories have fewer entries than there are names
	for _, e := range entries {
		rest, is := under(names, e.Name())
		path := filepath.Join(dir, e.Name())
		if is || any {
			s.found = append(s.found, path)
		}
		for _, deeper := range [][]string{rest, every} {
			if len(deeper) > 0 {
				s.look(path, deeper)
			}
		}
	}
	last, lacks := "", absentNames{dir: dir}
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
	s.unsure = append(s.unsure, path)
}

// A resolver resolves the symbolic links in paths of directories. It maps each directory it has seen to its
// path without links, "" if it does not exist.
type resolver map[string]string

// resolve returns the path of dir without symbolic links, or "" if dir does not exist or cannot be looked up.
// Cost: one stat(2) for each directory that r has not seen.
func (r resolver) resolve(dir string) string {
	if dir == "/" {
		return dir
	}
	to, known := r[dir]
	if known {
		return to
	}
	if above := r.resolve(filepath.Dir(dir)); above != "" {
		to = filepath.Join(above, filepath.Base(dir))
		info, err := os.Lstat(to)
		switch {
		case err != nil:
			to = ""
		case info.Mode()&os.ModeSymlink != 0:
			to, _ = filepath.EvalSymlinks(to) // "" after an error
		}
	}
	r[dir] = to
	return to
}

// maxLinks is how many symbolic links in one path [firstMissing] follows to find a secret. It gives up a path with
// more, as the kernel does, so that a loop of links ends.
const maxLinks = 40

// firstMissing follows path with all symbolic links in it, also those that lead nowhere. It returns the path,
// without links, of the first element that does not exist; "" if all exist or cannot be looked up.
func firstMissing(path string) string {
	at, links := "/", 0
	for rest := strings.Split(path, "/"); len(rest) > 0; {
		var name string
		name, rest = rest[0], rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		switch {
		case absent(err) && len(rest) > 0 && !isDir(at), err != nil && !absent(err):
			return "" // a file is where a directory would be
		case err != nil:
			return next
		case info.Mode()&os.ModeSymlink == 0:
			at = next
			continue
		}
		to, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return ""
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return ""
}

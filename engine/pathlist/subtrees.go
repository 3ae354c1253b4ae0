package pathlist

import "path/filepath"

// Subtrees is a set of directories, or files, with all below them, by their relative paths.
type Subtrees map[string]bool

// Add adds the paths, each with all below it, to the set.
func (s *Subtrees) Add(paths ...string) {
	if *s == nil {
		*s = Subtrees{}
	}
	for _, path := range paths {
		(*s)[path] = true
	}
}

// Cover reports whether a relative path is one of the set, or is below one.
func (s Subtrees) Cover(path string) bool {
	if len(s) == 0 {
		return false
	}
	for at := path; ; at = filepath.Dir(at) {
		if s[at] {
			return true
		}
		if at == "." {
			return false
		}
	}
}

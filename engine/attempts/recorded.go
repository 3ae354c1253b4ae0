package attempts

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/engine/datafiles"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// errUnrecorded is the error of a start whose reads are to be recorded, and of which the kernel cannot report any.
var errUnrecorded = &errs.Error{
	Op: "recording reads", Kind: errs.ErrNotSupported, Err: errors.New("recorded in [data] needs seccomp (Linux 5.19), and no other program that observes this one by it"),
	Hints: []string{"snapfs doctor"},
}

// How many different files a recorder records at most, and how many renames and links of them it knows. Beyond these a
// read, a rename or a link fails.
const (
	maxRecorded = 10_000
	maxMoves    = 1000
)

// A recorder knows the files of which the first read is recorded, under all the names that the sandbox gives them. Its
// methods are safe for concurrent use; a nil recorder records nothing.
type recorder struct {
	paths    []string // files and directories, after symbolic links
	patterns []string // for files that are made later

	mu    sync.Mutex
	done  map[string]bool
	moves []moved // in their order
}

// A moved is another name, to, that the file or directory with the name from in the beginning may have.
type moved struct{ from, to string }

// newRecorder returns a recorder of list, the paths and patterns of the key recorded. Errors: those of [datafiles.Find].
func newRecorder(list []string) (*recorder, error) {
	paths, err := datafiles.Find("recorded", list, false)
	if err != nil {
		return nil, err
	}
	return &recorder{paths: resolved(paths), patterns: list, done: map[string]bool{}}, nil
}

// resolved returns paths that the profile names with their symbolic links followed on the host, whose files the sandbox
// copies. It drops paths that do not exist.
func resolved(paths []string) (list []string) {
	for _, p := range paths {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			list = append(list, real)
		}
	}
	return list
}

// of returns the paths under which the first read of the file at path is recorded; none if it is not. There are several
// for a file that may have been moved there, since the recorder does not learn whether a move has succeeded.
func (r *recorder) of(path string) (all []string) {
	if r == nil {
		return nil
	}
	for _, original := range r.originals(path) {
		if r.names(original) {
			all = append(all, original)
		}
	}
	return all
}

// originals returns path, and the paths from which the file at path may have been moved there.
func (r *recorder) originals(path string) []string {
	all := []string{path}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.moves {
		if hostfs.Within(path, m.to) {
			all = append(all, m.from+path[len(m.to):])
		}
	}
	return all
}

// names reports whether a read of path is recorded.
func (r *recorder) names(path string) bool {
	if slices.ContainsFunc(r.paths, func(rule string) bool { return hostfs.Within(path, rule) }) {
		return true
	}
	for _, pattern := range r.patterns {
		if pathlist.Match("/", pattern, path) {
			return true
		}
	}
	return false
}

// read calls record for the first read of the file at path, which of has returned. It returns false if that fails, or
// if too many files are recorded.
func (r *recorder) read(path string, record func() error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[path] {
		return true
	}
	if len(r.done) >= maxRecorded || record() != nil {
		return false
	}
	r.done[path] = true
	return true
}

// move stores that the file or directory at from may get the name to, if a read of it or of a file below it is recorded.
// It returns false if too many have been moved.
func (r *recorder) move(from, to string) bool {
	if r == nil {
		return true
	}
	for _, original := range r.originals(from) {
		if !r.names(original) && !r.above(original) {
			continue
		}
		r.mu.Lock()
		m := moved{original, to}
		known := slices.Contains(r.moves, m) || original == to
		full := !known && len(r.moves) >= maxMoves
		if !known && !full {
			r.moves = append(r.moves, m)
		}
		r.mu.Unlock()
		if full {
			return false
		}
	}
	return true
}

// above reports whether a file of which reads are recorded may lie below dir.
func (r *recorder) above(dir string) bool {
	for _, p := range r.paths {
		if hostfs.Within(p, dir) {
			return true
		}
	}
	for _, p := range r.patterns {
		if fixed := pathlist.Fixed(p); pathlist.IsPattern(p) && (hostfs.Within(fixed, dir) || hostfs.Within(dir, fixed)) {
			return true
		}
	}
	return false
}

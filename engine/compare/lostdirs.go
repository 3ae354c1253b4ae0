package compare

import (
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A LostDir is a directory that the sandbox renamed and of which only the real tree had the
// entries, at the old path, where no directory is any more.
type LostDir struct {
	// Path is the directory in the sandbox, and From the old path; both are absolute.
	Path string `json:"path"`
	From string `json:"from"`
}

// Why returns what has happened to the directory, as text that follows "PATH: ".
func (l *LostDir) Why() string {
	return "the sandbox renamed it from " + pathlist.Printable(l.From) +
		", which is gone outside: only what the sandbox wrote itself is left in it"
}

// lostDirs returns the lost directories among the candidates of a tree.
func lostDirs(tree string, candidates []snapshot.Candidate) (lost []LostDir) {
	for _, c := range candidates {
		if c.LostFrom != "" {
			lost = append(lost, LostDir{Path: filepath.Join(tree, c.Path), From: filepath.Join(tree, c.LostFrom)})
		}
	}
	return lost
}

// addLost adds to the part those lost directories at or below which it has changes.
func (p *Part) addLost(lost []LostDir) {
	for _, l := range lost {
		if slices.ContainsFunc(p.Changes, func(c diff.Change) bool { return !c.TimeOnly() && hostfs.Within(filepath.Join(p.Root, c.Path), l.Path) }) {
			p.LostDirs = append(p.LostDirs, l)
		}
	}
}

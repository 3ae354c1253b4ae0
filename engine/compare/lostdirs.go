package compare

import (
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A LostDir is a directory that the sandbox renamed and whose entries are lost. Only the real tree had them,
// at the directory's old path, and no directory exists there any more.
type LostDir struct {
	// Path is the directory in the sandbox, and From the old path; both are absolute.
	Path string `json:"path"`
	From string `json:"from"`
}

// Why returns the message that the directory's entries are lost and how, to follow "PATH: ".
func (l *LostDir) Why() string {
	return "the sandbox renamed it from " + pathlist.Printable(l.From) +
		", which is gone outside: only what the sandbox wrote itself is left in it"
}

// lostDirs returns those candidates, changed paths that a backend lists, that are renamed directories with
// lost entries. tree is the path of their tree.
func lostDirs(tree string, candidates []snapshot.Candidate) (lost []LostDir) {
	for _, c := range candidates {
		if c.LostFrom != "" {
			lost = append(lost, LostDir{Path: filepath.Join(tree, c.Path), From: filepath.Join(tree, c.LostFrom)})
		}
	}
	return lost
}

// addLost adds to p.LostDirs those of lost, directories whose entries were lost after a rename, at or below
// which p has a change.
func (p *Part) addLost(lost []LostDir) {
	for _, l := range lost {
		if slices.ContainsFunc(p.Changes, func(c diff.Change) bool { return !c.TimeOnly() && hostfs.Within(filepath.Join(p.Root, c.Path), l.Path) }) {
			p.LostDirs = append(p.LostDirs, l)
		}
	}
}

package compare

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
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

// RefuseLost returns an ErrConflict if a directory in list, which the fork of t reads on the host, is gone.
func RefuseLost(rec *catalog.Record, t catalog.Tree, list []snapshot.Borrowed) error {
	for _, one := range list {
		l := LostDir{Path: filepath.Join(t.Path, one.Path), From: filepath.Join(t.Path, one.From)}
		if st, err := vfs.Lstat(-1, l.From); !one.Tree || err == nil && st.IsDir() {
			continue
		}
		return &errs.Error{
			Op: "promoting from", Path: rec.Name, Kind: errs.ErrConflict,
			Err:   errors.New(pathlist.Printable(l.Path) + ": " + l.Why() + "; this promotion would create " + pathlist.Printable(l.From) + " anew"),
			Hints: []string{"snapfs exec " + rec.Name + " -- rm -r " + errs.Quoted(l.Path) + "   # or put the directory back first"},
		}
	}
	return nil
}

// LostHints returns commands that repair a conflict about a renamed directory, at a path of the named sandbox, that
// the real tree has lost.
func LostHints(name, path string) []string {
	return []string{
		"snapfs undo   # if a promotion removed or renamed the directory; otherwise put it back there",
		"snapfs promote " + name + " --theirs " + errs.Quoted(path) + "   # give the directory up",
		"snapfs promote " + name + " --mine " + errs.Quoted(path) + "   # promote what is left of it",
	}
}

package reconcile

import (
	"errors"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// addLost adds to the merge's input directories that the sandbox renamed and whose entries the real tree lost.
func (m *partMerge) addLost() error {
	for i := range m.Part.LostDirs {
		l := &m.Part.LostDirs[i]
		rel, err := filepath.Rel(m.Part.Root, l.Path)
		if err != nil {
			return errs.With("comparing", l.Path, err)
		}
		if m.in.Lost == nil {
			m.in.Lost = map[string]string{}
		}
		m.in.Lost[rel] = l.Why()
	}
	return nil
}

// refuseLost returns an ErrConflict if a directory in list, which the fork of t reads on the host, is gone.
func refuseLost(rec *catalog.Record, t catalog.Tree, list []snapshot.Borrowed) error {
	for _, one := range list {
		l := compare.LostDir{Path: filepath.Join(t.Path, one.Path), From: filepath.Join(t.Path, one.From)}
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

// lostHints returns commands that repair a conflict about a renamed directory, at a path of the named sandbox, that
// the real tree has lost.
func lostHints(name, path string) []string {
	return []string{
		"snapfs undo   # if a promotion removed or renamed the directory; otherwise put it back there",
		"snapfs promote " + name + " --theirs " + errs.Quoted(path) + "   # give the directory up",
		"snapfs promote " + name + " --mine " + errs.Quoted(path) + "   # promote what is left of it",
	}
}

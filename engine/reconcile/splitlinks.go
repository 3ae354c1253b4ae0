package reconcile

import (
	"context"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/errs"
)

// addSplit adds to the merge's input, as conflicts, the files of the workspace that the sandbox changed under only
// one of several hard links. A promotion to the workspace would separate that name from the others.
func (m *partMerge) addSplit(ctx context.Context) error {
	if !m.promotes || !m.Part.Workspace || m.path != m.Part.Root {
		return nil
	}
	all, err := compare.FindSplitLinks(ctx, m.real, m.path, m.Part.Changes, func(c *diff.Change) *diff.Node { return m.seen[c.Path] })
	if err != nil || len(all) == 0 {
		return err
	}
	m.split, m.in.Split = map[string]compare.SplitLink{}, map[string]string{}
	for _, s := range all {
		rel, err := filepath.Rel(m.path, s.Path)
		if err != nil {
			return errs.With("merging", s.Path, err)
		}
		m.split[rel], m.in.Split[rel] = s, s.Why()
	}
	return nil
}

// splitAt returns the file of which the sandbox changed only one of several hard links, if the conflict c is about it.
func (m *partMerge) splitAt(c *merge.Conflict) (s compare.SplitLink, split bool) {
	for _, path := range []string{c.Path, c.MinePath} {
		if s, split = m.split[path]; split && c.Kind == merge.Links {
			return s, true
		}
	}
	return compare.SplitLink{}, false
}

package reconcile

import (
	"context"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
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

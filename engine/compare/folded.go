package compare

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// foldMin is the least number of entries of a renamed directory that [Comparer.DiffFolded] does not list in
// full.
const foldMin = 1000

// DiffFolded returns the changes between the states from and to of a sandbox as Diff does, but of a renamed directory
// with foldMin or more entries only the entries that changed, where the backend knows of the rename. See
// [diff.Options.Fold].
func (cm *Comparer) DiffFolded(ctx context.Context, name, from, to string) (*Changes, error) {
	return cm.diff(ctx, name, from, to, foldMin)
}

// foldable returns the candidates, changed paths of a tree, for a comparison that does not list all entries of a
// renamed directory. It clears RenamedFrom of a directory whose entries must be listed, because one end of the rename
// is in the workspace and the other is not, or contains the workspace.
func foldable(candidates []snapshot.Candidate, tree, workspace string) []snapshot.Candidate {
	if tree == workspace {
		return candidates
	}
	candidates = slices.Clone(candidates)
	for i := range candidates {
		c := &candidates[i]
		if c.RenamedFrom == "" {
			continue
		}
		from, to := filepath.Join(tree, c.RenamedFrom), filepath.Join(tree, c.Path)
		if hostfs.Within(workspace, from) || hostfs.Within(workspace, to) || hostfs.Within(from, workspace) != hostfs.Within(to, workspace) {
			c.RenamedFrom = ""
		}
	}
	return candidates
}

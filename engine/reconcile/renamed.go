package reconcile

import (
	"context"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
)

// addRenamed adds to the real changes the new paths of files that the real tree renamed and the sandbox deleted.
// listed has the sandbox's changed paths.
func (m *partMerge) addRenamed(ctx context.Context, listed map[string]bool) error {
	if !m.Part.Workspace {
		return nil
	}
	real := baseline.RootedReader{Root: m.real}
	defer real.Close()
	for from, to := range m.renamed {
		if err := m.interrupted(ctx); err != nil {
			return err
		}
		if !listed[from] || listed[to] {
			continue
		}
		n, err := real.Node(to)
		if err != nil {
			return errs.With("comparing", filepath.Join(m.path, to), err)
		}
		if n != nil {
			m.seen[to] = n
			m.in.Real = append(m.in.Real, diff.Change{Path: to, Kind: diff.Added, New: n})
		}
	}
	return nil
}

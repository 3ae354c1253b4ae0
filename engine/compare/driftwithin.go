package compare

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/vfs"
)

// maxUnwritten is the amount of unwritten data of the host, in bytes, above which DriftWithin gives up
// instead of starting a sync. A process cannot end during a sync, so its time limits would not hold.
const maxUnwritten = 8 << 20

// DriftWithin reports drift as [Comparer.DriftOfRecord] does, with two time limits: look for the search of
// the real tree, whose cost grows with the tree, and most for everything. Known is false if a limit is
// reached. It is false at once if the base is frozen and the host has too much unwritten data, or if the base
// is live and an earlier search has shown that the workspace is too large; see [baseline.Recorder.NoteLarge].
func (cm *Comparer) DriftWithin(ctx context.Context, name string, look, most time.Duration) (DriftReport, error) {
	rec, err := cm.cat.Get(name)
	if err != nil {
		return DriftReport{}, err
	}
	t, ok := WorkspaceTree(rec)
	unknown := DriftReport{Sandbox: name, Since: t.Taken, Paths: []DriftPath{}}
	if ok && t.Frozen && hostinfo.Unwritten() > maxUnwritten || !t.Frozen && cm.baseline.IsLarge(rec.Workspace) {
		return unknown, nil
	}
	all, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	search, end := context.WithTimeout(sparing(all), look)
	defer end()
	r, err := cm.driftOf(all, search, rec)
	if errors.Is(err, errManyNames) {
		cm.baseline.NoteLarge(rec.Workspace)
	}
	if err != nil && ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || expired(all) != nil) {
		return unknown, nil
	}
	return r, err
}

// candidatesNear lists, by tree, the paths that the sandbox may have changed, without those that cannot be among the
// drifted paths that the sandbox has changed, too. In the workspace it leaves out the paths that neither are nor
// contain one of paths, the drifted ones; outside of the workspace it leaves out those for which [mayDrift] is false. A
// tree whose backend cannot list changed paths has no entry.
func (cm *Comparer) candidatesNear(ctx context.Context, rec *catalog.Record, paths []DriftPath) (map[string][]snapshot.Candidate, error) {
	near := map[string]bool{}
	for _, p := range paths {
		for at := p.Path; !near[at]; at = filepath.Dir(at) {
			near[at] = true
		}
	}
	listed := map[string][]snapshot.Candidate{}
	for _, t := range rec.Trees {
		if hostfs.Vanished(t, rec.Workspace) {
			continue
		}
		b, err := cm.host.BackendOf(ctx, t)
		if err != nil {
			return nil, err
		}
		candidates, walk, err := ListChanges(ctx, b, Pair{Tree: t, Left: t.Base})
		if err != nil {
			return nil, err
		}
		if !walk {
			listed[t.Path] = slices.DeleteFunc(candidates, func(c snapshot.Candidate) bool {
				abs := filepath.Join(t.Path, c.Path)
				if hostfs.Within(abs, rec.Workspace) {
					return !near[abs]
				}
				return !c.Tree && !mayDrift(t, c, abs)
			})
		}
	}
	return listed, nil
}

// mayDrift reports whether the real file at abs, a path outside the workspace, or an entry of it may have changed since
// the base of the tree t was taken, so that [DriftReport.addOutside] may report it. c is the candidate for abs, and not
// a whole subtree. mayDrift looks only at the real file.
func mayDrift(t catalog.Tree, c snapshot.Candidate, abs string) bool {
	st, err := vfs.Lstat(-1, abs)
	switch {
	case err != nil:
		return t.Frozen
	case st.IsDir():
		return !c.Named // otherwise its entries are candidates of their own
	}
	return !st.CTime.Time().Before(t.Taken)
}

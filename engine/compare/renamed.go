package compare

import (
	"context"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
)

// AddRenamed adds to changes the deletion of each file of a workspace on a live base that the sandbox has
// deleted and the real tree has renamed since. A comparison misses these, as neither side has the old path.
// It returns the new paths by the old ones, both relative to the workspace. It finds files that nobody has
// written to and whose directory has not been renamed. If the baseline records a path that is not listed,
// AddRenamed adds a part for the workspace to changes: both sides may have made the same change there. Cost: an
// lstat of each recorded path that is not listed; if one does not exist on either side, that of RealChangesIn.
func (cm *Comparer) AddRenamed(ctx context.Context, rec *catalog.Record, changes *Changes) (map[string]string, error) {
	t, ok := WorkspaceTree(rec)
	if !ok || t.Frozen || rec.Ephemeral {
		return nil, nil
	}
	k, err := cm.baseline.Read(rec)
	if err != nil {
		return nil, err
	}
	gone, unlisted, err := goneOf(ctx, rec, changes, k)
	if err == nil && unlisted {
		_, err = cm.workspacePart(ctx, rec, changes)
	}
	if err != nil {
		return nil, err
	}
	if len(gone) == 0 {
		return nil, nil
	}
	moved, _, err := cm.RealChangesIn(ctx, t, rec.Workspace)
	if err != nil {
		return nil, err
	}
	to := map[string]string{}
	for _, c := range moved {
		was := gone[c.New.Ino]
		if n := k.Nodes[was].Node; was != "" && c.New.Mode.IsRegular() && n.Size == c.New.Size && n.MTime.Equal(c.New.MTime) {
			to[hostfs.Relative(was, rec.Workspace)] = hostfs.Relative(filepath.Join(t.Path, c.Path), rec.Workspace)
		}
	}
	return to, cm.addDeleted(ctx, rec, changes, k, to)
}

// goneOf returns the paths of those files of the workspace that the baseline k records but the real tree does
// not have any more, by inode number. It leaves out the paths that are among the changes. unlisted is true if k
// records a path of the workspace that is not among them.
func goneOf(ctx context.Context, rec *catalog.Record, changes *Changes, k *baseline.Baseline) (gone map[uint64]string, unlisted bool, err error) {
	listed := map[string]bool{}
	for _, p := range changes.Parts {
		for _, c := range p.Changes {
			listed[filepath.Join(p.Root, c.Path)] = true
		}
	}
	gone = map[uint64]string{}
	for abs, n := range k.Nodes {
		if err := interrupted(ctx, "comparing", abs); err != nil {
			return nil, false, err
		}
		if listed[abs] || !hostfs.Within(abs, rec.Workspace) {
			continue
		}
		unlisted = true
		if n.Promoted || n.Unknown != "" || n.Node == nil || !n.Node.Mode.IsRegular() {
			continue
		}
		if _, err := os.Lstat(abs); baseline.Absence(err) == nil && err != nil {
			gone[n.Node.Ino] = abs
		}
	}
	return gone, unlisted, nil
}

// addDeleted adds to changes the deletion of each file that the real tree renamed, to maps its old path to
// its new one, if the sandbox does not have the old path. It removes the other paths from to, and those that the
// sandbox renamed in the same way: it created the new path, which is then no change.
func (cm *Comparer) addDeleted(ctx context.Context, rec *catalog.Record, changes *Changes, k *baseline.Baseline, to map[string]string) error {
	if len(to) == 0 {
		return nil
	}
	p, err := cm.workspacePart(ctx, rec, changes)
	if err != nil {
		return err
	}
	mine := baseline.RootedReader{Root: p.New}
	defer mine.Close()
	listed := map[string]bool{}
	for i := range p.Changes {
		listed[p.Changes[i].Path] = true
	}
	for path := range to {
		if err := interrupted(ctx, "comparing", filepath.Join(p.Root, path)); err != nil {
			return err
		}
		now, err := mine.Present(path)
		if err != nil {
			return errs.With("comparing", filepath.Join(p.Root, path), err)
		}
		created, touched := k.Nodes[filepath.Join(p.Root, to[path])]
		if now != nil || touched && created.Node == nil && !listed[to[path]] {
			delete(to, path)
			continue
		}
		p.Changes = append(p.Changes, diff.Change{Path: path, Kind: diff.Deleted, Old: k.Nodes[filepath.Join(p.Root, path)].Node})
	}
	baseline.SortChanges(p.Changes)
	return nil
}

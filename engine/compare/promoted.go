package compare

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// A promotion to the sandbox's own workspace becomes the base of the sandbox's
// later changes there, and one to another target of those for that target. The base
// for all others stays the original one, so that the promoted changes still count.

// AddPromoted completes the list of changes for a promotion to the directory target: it adds the paths that
// the sandbox has already promoted to its workspace or to target. On a live base these show as unchanged,
// because the real tree has them, too; and the sandbox may have reverted one since. The paths come from the
// baseline, and from also, relative to the workspace, since a killed command may not have recorded them.
func (cm *Comparer) AddPromoted(ctx context.Context, rec *catalog.Record, changes *Changes, target string, also []string) error {
	k, err := cm.baseline.Read(rec)
	if err != nil {
		return err
	}
	paths := map[string]bool{} // relative to the workspace
	for _, path := range also {
		paths[path] = true
	}
	add := func() {
		for abs, n := range k.Nodes {
			if n.Promoted && hostfs.Within(abs, rec.Workspace) && abs != rec.Workspace {
				paths[hostfs.Relative(abs, rec.Workspace)] = true
			}
		}
	}
	add()
	k.In(rec.Workspace, target)
	add()
	if len(changes.Parts) > 0 && changes.Parts[0].Workspace {
		for _, c := range changes.Parts[0].Changes {
			delete(paths, c.Path)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	p, err := cm.workspacePart(ctx, rec, changes)
	if err != nil {
		return err
	}
	mine := baseline.RootedReader{Root: p.New}
	defer mine.Close()
	for path := range paths {
		if err := interrupted(ctx, "comparing", filepath.Join(p.Root, path)); err != nil {
			return err
		}
		now, err := mine.Node(path)
		if err != nil {
			return errs.Wrap("reading", filepath.Join(p.Root, path), err)
		}
		was, known := k.Nodes[filepath.Join(p.Root, path)]
		if c, ok := promotedChange(path, was.Node, now, known); ok {
			p.Changes = append(p.Changes, c)
		}
	}
	baseline.SortChanges(p.Changes)
	return nil
}

// promotedChange returns the difference between a promoted path's original, was, and its present state, now;
// nil means absent. known is false if the original is not known. A file that exists on both sides counts as
// modified in content, because the merge compares the bytes and handles an unknown original. It returns false
// for no difference.
func promotedChange(path string, was, now *diff.Node, known bool) (diff.Change, bool) {
	c := diff.Change{Path: path, Kind: diff.Modified, What: diff.Content, Old: was, New: now}
	switch {
	case now == nil && (was != nil || !known):
		c.Kind, c.What = diff.Deleted, 0
	case now == nil:
		return c, false
	case was == nil:
		c.Kind, c.What = diff.Added, 0
	}
	return c, true
}

// workspacePart returns the [Part] of changes for the sandbox's workspace, to which the caller adds some. If
// there is none, workspacePart adds one without changes, with base and fork open.
func (cm *Comparer) workspacePart(ctx context.Context, rec *catalog.Record, changes *Changes) (*Part, error) {
	if len(changes.Parts) > 0 && changes.Parts[0].Workspace {
		return &changes.Parts[0], nil
	}
	t, ok := WorkspaceTree(rec)
	if !ok {
		return nil, &errs.Error{Op: "opening", Path: rec.Workspace, Kind: errs.ErrNotFound, Err: errors.New("no tree of the sandbox contains the workspace")}
	}
	b, err := cm.host.BackendOf(ctx, t)
	if err != nil {
		return nil, err
	}
	left, right, err := views(ctx, b, Pair{Tree: t, Left: t.Base})
	if err != nil {
		return nil, err
	}
	dirs, err := hostfs.OpenDir(ctx, isolate.OpenViews, b, t.Path, rec.Workspace, false, left, right)
	if err != nil {
		return nil, err
	}
	p := Part{
		Root: rec.Workspace, Workspace: true, Old: dirs[0], New: dirs[1], Tree: t.Path, Taken: t.Taken, Frozen: t.Frozen,
		Opt: diff.Options{Skip: cm.host.Skip(b, t.Path), SameInodes: b.Facts().KeepsInodes, Taken: t.Taken, OverlayViews: true},
	}
	changes.Parts = append([]Part{p}, changes.Parts...)
	return &changes.Parts[0], nil
}

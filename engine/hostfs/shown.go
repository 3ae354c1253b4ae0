package hostfs

import (
	"errors"
	"slices"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
)

// Shows reports whether the sandbox sees path as it is on the host, read-only, instead of a copy in a tree.
func (e *Environment) Shows(path string) bool {
	best := ""
	for _, p := range e.Shown {
		if Within(path, p) && len(p) > len(best) {
			best = p
		}
	}
	return best != "" && len(best) > len(e.treeOf(path))
}

// IsMount reports whether a filesystem of the host is mounted exactly at path.
func (e *Environment) IsMount(path string) bool {
	return slices.ContainsFunc(e.mounts, func(m mount.Point) bool { return m.Path == path })
}

// hides reports whether showing the host's directory p read-only would cover a tree of the sandbox: one that
// has become read-only since, or the one with the workspace.
func hides(rec *catalog.Record, p string) bool {
	if slices.ContainsFunc(rec.Trees, func(t catalog.Tree) bool { return t.Path == p }) {
		return true
	}
	return !rec.BareWorkspace && Within(rec.Workspace, p) && Within(p, Holder(rec))
}

// checkMounted returns ErrNotFound if t, the tree with the workspace, was a mount and is no longer mounted:
// its base would be the empty directory below. For another tree it returns a note for the user, unless the
// tree's directory has gone too.
func checkMounted(rec *catalog.Record, t catalog.Tree, env *Environment) (note string, err error) {
	if Vanished(t, rec.Workspace) || !t.Mounted || env.IsMount(t.Path) {
		return "", nil
	}
	if t.Path != Holder(rec) {
		return "nothing is mounted at " + pathlist.Printable(t.Path) + " any more: only what " + rec.Name + " changed in it is shown", nil
	}
	return "", &errs.Error{
		Op: "entering", Subject: rec.Name, Path: t.Path, Kind: errs.ErrNotFound,
		Err:   errors.New("its filesystem, which has the workspace, is not mounted any more"),
		Hints: []string{"mount " + errs.Quoted(t.Path), "snapfs diff " + rec.Name + "   # what the sandbox holds of it"},
	}
}

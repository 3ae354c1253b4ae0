package reconcile

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/engine/merge/mergetool"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// Answers resolve conflicts: those that match mine with the sandbox's version, those that match theirs with the real
// version, all others by a merge tool, if given. Patterns are those of PlanOptions.Only.
type Answers struct {
	mine, theirs []string
	tool         string
	terminal     *mergetool.Terminal
	failed       *error // where choose stores the error of a merge tool, for the merge to return; or nil
}

// none reports whether the user's answers are empty, so that they resolve no conflict.
func (a Answers) none() bool { return len(a.mine) == 0 && len(a.theirs) == 0 && a.tool == "" }

// choose returns the function that resolves the conflicts of a merge, or nil if there are no answers.
func (a Answers) choose(ctx context.Context, rec *catalog.Record) func(m *partMerge, c merge.Conflict) merge.Choice {
	if a.none() {
		return nil
	}
	return func(m *partMerge, c merge.Conflict) merge.Choice {
		abs := filepath.Join(m.Part.Root, c.Path)
		switch {
		case matchAny(rec.Workspace, a.mine, abs):
			return merge.Mine
		case matchAny(rec.Workspace, a.theirs, abs):
			return merge.Theirs
		case a.tool == "" || !hasFiles(c) || a.failed != nil && *a.failed != nil:
			return merge.Ask
		}
		out := filepath.Join(m.scratch, c.Path)
		err := mergetool.Run(ctx, a.tool, a.terminal, mergetool.Versions{
			Base: func() (io.ReadCloser, error) { return openOr(m.in.OpenBase, c.Base, other(c.BasePath, c.Path)) },
			Mine: func() (io.ReadCloser, error) { return openIn(m.Part.New, c.Mine, other(c.MinePath, c.Path)) },
			Real: func() (io.ReadCloser, error) { return openIn(m.real, c.Real, other(c.RealPath, c.Path)) },
		}, m.scratch+".tool", abs, out)
		if err == nil {
			return merge.Built
		}
		if a.failed != nil {
			*a.failed = err
		}
		return merge.Ask
	}
}

// matchAny reports whether one of the patterns, relative to the workspace, matches the absolute path abs.
func matchAny(workspace string, patterns []string, abs string) bool {
	for _, p := range patterns {
		if pathlist.Match(workspace, p, abs) {
			return true
		}
	}
	return false
}

// other returns a file's path in one tree as a conflict gives it, where "" means the same path as in the merged tree.
func other(path, same string) string {
	if path == "" {
		return same
	}
	return path
}

// hasFiles reports whether sandbox and real tree have regular files, so that a merge tool can resolve c.
func hasFiles(c merge.Conflict) bool {
	regular := func(n *diff.Node) bool { return n != nil && n.Mode.IsRegular() }
	return regular(c.Mine) && regular(c.Real) && !c.Several
}

// openOr opens the file at path by open for a merge tool; the caller closes it. nil: n, its node, is not regular.
func openOr(open func(string) (*os.File, error), n *diff.Node, path string) (io.ReadCloser, error) {
	if n == nil || !n.Mode.IsRegular() {
		return nil, nil
	}
	f, err := open(path)
	if errors.Is(err, errs.ErrNotFound) {
		return nil, nil
	}
	return f, err
}

// openIn opens the file n at a path of tree, for a merge tool. It returns nil unless that is a regular file.
func openIn(tree *os.File, n *diff.Node, path string) (io.ReadCloser, error) {
	l := baseline.RootedReader{Root: tree}
	return openOr(l.Open, n, path)
}

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

// Answers resolve conflicts: those that match mine with the sandbox's version, those that
// match theirs with the real tree's version, and all others by a merge tool, if there is one.
// Patterns are those of PlanOptions.Only.
type Answers struct {
	mine, theirs []string
	tool         string
	terminal     *mergetool.Terminal
	failed       *error
}

// none reports whether there is no answer at all.
func (a Answers) none() bool { return len(a.mine) == 0 && len(a.theirs) == 0 && a.tool == "" }

// choose returns the function that answers the conflicts of a merge, or nil if
// there are no answers.
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

// matchAny reports whether one of the patterns matches an absolute path.
func matchAny(workspace string, patterns []string, abs string) bool {
	for _, p := range patterns {
		if pathlist.Match(workspace, p, abs) {
			return true
		}
	}
	return false
}

// other returns the path that a conflict gives for one side. The conflict leaves it empty where
// it is the same as in the merged tree: then other returns same.
func other(path, same string) string {
	if path == "" {
		return same
	}
	return path
}

// hasFiles reports whether both sides of a conflict are regular files, so that a merge tool
// can resolve it.
func hasFiles(c merge.Conflict) bool {
	regular := func(n *diff.Node) bool { return n != nil && n.Mode.IsRegular() }
	return regular(c.Mine) && regular(c.Real) && !c.Several
}

// openOr opens the file of node n with open; the caller closes it. It returns nil if n is not
// a regular file, or the file is gone.
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

// openIn opens the file of node n in a tree, as openOr does.
func openIn(tree *os.File, n *diff.Node, path string) (io.ReadCloser, error) {
	l := baseline.RootedReader{Root: tree}
	return openOr(l.Open, n, path)
}

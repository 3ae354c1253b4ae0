package reconcile

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
)

// Answers resolve conflicts: those that match mine with the sandbox's version, those that
// match theirs with the real tree's version, and all others by a merge tool, if there is one.
// Patterns are those of PlanOptions.Only.
type Answers struct {
	mine, theirs []string
	tool         string
	terminal     *Terminal
	failed       *error
}

// Terminal connects a merge tool to a person. A nil field is closed.
type Terminal struct {
	In       io.Reader
	Out, Err io.Writer
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
		err := a.run(ctx, toolFiles{
			base: func() (io.ReadCloser, error) { return openOr(m.in.OpenBase, c.Base, other(c.BasePath, c.Path)) },
			mine: func() (io.ReadCloser, error) { return openIn(m.Part.New, c.Mine, other(c.MinePath, c.Path)) },
			real: func() (io.ReadCloser, error) { return openIn(m.real, c.Real, other(c.RealPath, c.Path)) },
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

// A toolFiles has functions that open the three versions of a file for a merge tool; each may
// return nil for a missing one.
type toolFiles struct {
	base, mine, real func() (io.ReadCloser, error)
}

// run runs the merge tool on one file in the private directory dir, and moves the
// result to out. The tool is a shell command that finds the names of four files
// in $BASE, $MINE, $REAL and $OUT; if it contains no $, they are its arguments.
// It must create $OUT and exit with status 0.
func (a Answers) run(ctx context.Context, files toolFiles, dir, path, out string) error {
	fail := func(err error) error {
		kind := errs.KindOf(err)
		if kind == nil {
			kind = errs.ErrConflict
		}
		return &errs.Error{Op: "running the merge tool", Path: path, Kind: kind, Err: err}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fail(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // or the next use does
	env := os.Environ()
	var args []string
	for _, f := range []struct {
		name string
		open func() (io.ReadCloser, error)
	}{{"base", files.base}, {"mine", files.mine}, {"real", files.real}, {"out", nil}} {
		at := filepath.Join(dir, f.name+filepath.Ext(path))
		if f.open != nil {
			if err := copyTo(at, f.open); err != nil {
				return fail(err)
			}
		}
		env, args = append(env, strings.ToUpper(f.name)+"="+at), append(args, at)
	}
	script := a.tool
	if !strings.Contains(script, "$") {
		script += ` "$@"`
	}
	p := run.Program{Name: "sh", Args: append([]string{"-c", script, "tool"}, args...), Env: env, Dir: dir}
	if a.terminal != nil {
		p.Stdin, p.Stdout, p.Stderr = a.terminal.In, a.terminal.Out, a.terminal.Err
	}
	if err := run.Run(ctx, p); err != nil {
		return fail(err)
	}
	made := args[len(args)-1]
	if info, err := os.Lstat(made); err != nil || !info.Mode().IsRegular() {
		return fail(errors.New("the tool has not created $OUT"))
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o700); err != nil {
		return fail(err)
	}
	if err := os.Rename(made, out); err != nil {
		return fail(err)
	}
	return nil
}

// copyTo writes one version of a conflicting file to a new file for a merge tool. A missing
// version (nil) becomes an empty file, which merge tools expect.
func copyTo(path string, open func() (io.ReadCloser, error)) error {
	src, err := open()
	if err != nil {
		return err
	}
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(err, closeIf(src))
	}
	if src != nil {
		_, err = io.Copy(dst, src)
	}
	return errors.Join(err, dst.Close(), closeIf(src))
}

// closeIf closes c unless it is nil.
func closeIf(c io.Closer) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

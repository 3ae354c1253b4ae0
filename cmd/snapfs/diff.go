package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/spf13/cobra"
)

// A differ is one run of `snapfs diff`: the values of its flags, with the methods that do the steps.
type differ struct {
	a                     *app
	patch, stat, exitCode bool
	// html is the path of the review page to write, or "".
	html string
	// name is the sandbox whose own states are compared, or "" for a comparison of two.
	name string
}

func newDiff(a *app) *cobra.Command {
	d := differ{a: a}
	cmd := &cobra.Command{
		Use:   "diff [flags] sandbox[@from..to] [from..to|other] [path...]",
		Short: "show what changed in a sandbox, or what differs between two",
		Long: `Compares a sandbox with its base, or two of its named snapshots. In from..to an empty
left side is the base, and an empty right side the present files.

With two names it compares any two of: a sandbox's present files (sandbox), one of its
snapshots (sandbox@state), its base (sandbox@), and the real tree ("real"). The result
lists the changes that lead from the first to the second. If a sandbox is named real,
@real is the real tree and sandbox:real the sandbox.

Commits are listed by branch, in place of the files of git's own that hold them.

A renamed directory of 1,000 entries or more is one line, with lines for what changed in it,
where the backend knows of the rename (fusecow, and as root overlay and btrfs). Its name as
a path lists every file, as do --patch, --stat and --html.

Paths limit the result. Relative paths start at the workspace, or at the current
directory if it lies in the workspace. Write a path that reads like a name with a
slash: ./fix

At a terminal it uses colours and a pager, as git does: $SNAPFS_PAGER, $PAGER or less, and
none for cat. no-color.org and TERM=dumb are respected. In a long list, paths of one
directory share a line; a pipe gets every path.

--html writes one file that loads nothing and runs no code from the changes. Only its
owner can read it. It replaces an earlier review page and no other file.`,
		Example: `  snapfs diff fix
  snapfs diff fix --patch
  snapfs diff fix --html fix.html   a page to review in a browser
  snapfs diff fix before..          from the state "before" to now
  snapfs diff fix@before..after src
  snapfs diff fix other@start       two sandboxes
  snapfs diff real fix --stat       what fix has and the real tree has not`,
		Args: atLeast("sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.patch && a.ui.json {
				return usageError(errors.New("--patch excludes --json"))
			}
			if d.patch && d.stat {
				return usageError(errors.New("--patch and --stat exclude one another"))
			}
			if d.html != "" && (d.patch || d.stat) {
				return usageError(errors.New("--html excludes --patch and --stat"))
			}
			return d.run(cmd, args)
		},
		ValidArgsFunction: a.completeRefs,
	}
	cmd.Flags().BoolVarP(&d.patch, "patch", "p", false, "print a patch for git apply")
	cmd.Flags().BoolVar(&d.stat, "stat", false, "print added and deleted lines per file")
	cmd.Flags().StringVar(&d.html, "html", "", "write a review page to this `file` (- for standard output)")
	cmd.Flags().BoolVar(&d.exitCode, "exit-code", false, "exit with status 1 if anything changed")
	return cmd
}

func (d *differ) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	e, err := d.a.engine(ctx)
	if err != nil {
		return err
	}
	var paths []string
	changes, err := compare.Served(ctx, func(ctx context.Context) (changes *compare.Changes, err error) {
		if changes, paths, err = d.find(ctx, e, args); err != nil {
			return nil, err
		}
		d.a.ui.notices(changes.FindCommits())
		changes.Limit(paths)
		if err = errors.Join(changes.FindRenames(ctx), d.findSplit(ctx, changes)); err != nil {
			changes.Close()
		}
		return changes, err
	})
	if err != nil {
		return err
	}
	defer changes.Close()
	if changes.Len() == 0 {
		d.unknown(paths)
	}
	if d.html != "" {
		err = d.a.writePage(ctx, d.html, changes, args[:len(args)-len(paths)])
	} else {
		err = d.print(cmd, changes)
	}
	if err != nil {
		return err
	}
	if d.name != "" {
		d.a.ui.reservations(changes, d.name)
	}
	if d.name != "" {
		d.a.behind(ctx, e, d.name)
	}
	if d.exitCode && changes.Len() > 0 {
		return errSilent
	}
	return nil
}

// findSplit finds, in the changes of a sandbox, the files with several hard links of which the sandbox
// changed only one name. It does nothing if two other states are compared.
func (d *differ) findSplit(ctx context.Context, changes *compare.Changes) error {
	if d.name == "" {
		return nil
	}
	return changes.FindSplit(ctx)
}

// unknown prints a notice for each of the paths that neither exists nor has changed, because it may be a
// misspelt name of a sandbox or a file.
func (d *differ) unknown(paths []string) {
	for _, path := range paths {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			d.a.ui.notice(path + " does not exist, was not deleted, and is no sandbox's name")
		}
	}
}

// find compares the states that args name, or a sandbox with its base. It returns the changes, and the
// absolute paths among args, to which the caller limits the changes.
func (d *differ) find(ctx context.Context, e *engine.Engine, args []string) (*compare.Changes, []string, error) {
	left, right, two, err := d.refs(args)
	if err != nil {
		return nil, nil, err
	}
	if two {
		paths, err := inSandbox(e, cmp.Or(left.Sandbox, right.Sandbox), args[2:])
		if err != nil {
			return nil, nil, err
		}
		changes, err := e.Compare.Compare(ctx, left, right)
		return changes, paths, err
	}
	name, states := splitState(args[0])
	from, to, _ := strings.Cut(states, "..")
	paths := args[1:]
	if states == "" && len(paths) > 0 && isRange(paths[0]) {
		from, to, _ = strings.Cut(paths[0], "..")
		paths = paths[1:]
	}
	if paths, err = inSandbox(e, name, paths); err != nil {
		return nil, nil, err
	}
	d.name = name
	compareStates := e.Compare.DiffFolded
	if d.patch || d.stat || d.html != "" || len(paths) > 0 {
		compareStates = e.Compare.Diff // each file of a renamed directory is shown
	}
	changes, err := compareStates(ctx, name, from, to)
	return changes, paths, err
}

// Words that mean the real tree in the arguments of `snapfs diff`: realTree itself, and the spellings that
// distinguish the real tree from a sandbox called real.
const (
	realTree    = "real"
	surelyReal  = "@real"
	surelyNamed = "sandbox:"
)

// refs parses the first two arguments as the states to compare. two is false if there is no second argument,
// or the second is a path.
func (d *differ) refs(args []string) (left, right compare.Ref, two bool, err error) {
	if len(args) < 2 {
		return left, right, false, d.lonely(args[0])
	}
	names := d.a.sandboxes(nil)
	if right, two, err = refOf(args[1], names); err != nil || !two {
		return left, right, false, errors.Join(err, d.lonely(args[0]))
	}
	left, known, err := refOf(args[0], names)
	if err == nil && !known {
		left, err = sandboxRef(args[0])
	}
	return left, right, true, err
}

// lonely returns the usage error for a single argument that means the real tree, because a second state to
// compare it with is missing.
func (d *differ) lonely(arg string) error {
	if arg == surelyReal || arg == realTree && !slices.Contains(d.a.sandboxes(nil), realTree) {
		return usageError(errors.New("real requires a sandbox to compare with"))
	}
	return nil
}

// refOf parses an argument as a state to compare. is reports whether the argument names one, an existing
// sandbox or the real tree, and is not a path.
func refOf(arg string, sandboxes []string) (ref compare.Ref, is bool, err error) {
	named := slices.Contains(sandboxes, realTree)
	switch {
	case arg == surelyReal, arg == realTree && !named:
		return compare.Ref{}, true, nil
	case arg == realTree:
		return ref, false, usageError(errors.New(`"real" is a sandbox, too: write @real for the real tree, sandbox:real for the sandbox`))
	case strings.HasPrefix(arg, surelyNamed):
		ref, err = sandboxRef(strings.TrimPrefix(arg, surelyNamed))
		return ref, true, err
	case strings.Contains(arg, "/"), isRange(arg):
		return ref, false, nil
	}
	name, _ := splitState(arg)
	if !slices.Contains(sandboxes, name) {
		return ref, false, nil
	}
	ref, err = sandboxRef(arg)
	return ref, true, err
}

// sandboxRef parses an argument of `snapfs diff` that names a state of a sandbox: sandbox, sandbox@state, or
// sandbox@ for the sandbox's base.
func sandboxRef(arg string) (compare.Ref, error) {
	name, state, at := strings.Cut(arg, "@")
	if name == "" || strings.Contains(state, "..") {
		return compare.Ref{}, usageError(fmt.Errorf("%q is not one snapshot: write sandbox, sandbox@state, or sandbox@ for its base", arg))
	}
	return compare.Ref{Sandbox: name, State: state, Base: at && state == ""}, nil
}

// isRange reports whether s, an argument, is a range of a sandbox's snapshots, from..to. A path with two dots
// contains a slash and is no range.
func isRange(s string) bool {
	return strings.Contains(s, "..") && !strings.Contains(s, "/") && s != ".."
}

func (d *differ) print(cmd *cobra.Command, changes *compare.Changes) error {
	u := d.a.ui
	ctx := cmd.Context()
	if u.json {
		return u.result(documentOf(changes), nil)
	}
	return u.paged(u.out, func(w io.Writer) error {
		switch {
		case d.patch:
			return printPatch(ctx, w, changes, isTerminal(u.out), u.colours(u.out))
		case d.stat:
			return printStat(ctx, w, changes, width(u.out))
		}
		most := 0
		if isTerminal(u.out) {
			most = 4 * screenful
		}
		if u.colours(u.out) {
			w = &letterPainter{w: w}
		}
		return printTable(w, changes, most, cmd.CommandPath()+" … | cat")
	})
}

// inSandbox returns the paths, arguments of a command about the sandbox called name, made absolute. They are
// relative to the current directory if that lies in the sandbox's workspace, otherwise to the workspace.
func inSandbox(e *engine.Engine, name string, paths []string) ([]string, error) {
	workspace, err := e.WorkspaceOf(name)
	if err != nil {
		return nil, err
	}
	from := startingPoint(workspace)
	abs := make([]string, 0, len(paths))
	for _, p := range paths {
		if p == "" {
			return nil, usageError(errors.New("a path is empty"))
		}
		if !filepath.IsAbs(p) {
			p = filepath.Join(from, p)
		}
		abs = append(abs, throughLinks(filepath.Clean(p), workspace))
	}
	return abs, nil
}

// startingPoint returns the directory at which relative paths start: the current directory if it lies in the
// workspace, also through symbolic links, otherwise the workspace.
func startingPoint(workspace string) string {
	cwd, err := workdir()
	if err == nil {
		cwd, err = filepath.EvalSymlinks(cwd)
	}
	if err == nil && pathlist.Within(cwd, workspace) {
		return cwd
	}
	return workspace
}

// throughLinks resolves the symbolic links in all elements of path but the last. It returns the result if
// that lies in the workspace, otherwise path.
func throughLinks(path, workspace string) string {
	if pathlist.Within(path, workspace) {
		return path
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && pathlist.Within(dir, workspace) {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

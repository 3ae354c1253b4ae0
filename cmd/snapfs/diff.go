package main

import (
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/diff"
)

// A differ is one `snapfs diff`.
type differ struct {
	a                     *app
	patch, stat, exitCode bool
}

func newDiff(a *app) *cobra.Command {
	d := differ{a: a}
	cmd := &cobra.Command{
		Use:   "diff [flags] sandbox[@from..to] [from..to] [path...]",
		Short: "show what changed in a sandbox",
		Long: `Compares a sandbox with its base, or two of its states. In from..to either may be
left out: the base on the left, the files as they are now on the right.
Paths limit what is shown; relative ones are beneath the workspace, or beneath
this directory where it lies in the workspace.`,
		Example: `  snapfs diff fix
  snapfs diff fix --patch
  snapfs diff fix before..          from the state "before" to now
  snapfs diff fix@before..after src`,
		Args: atLeast("sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.patch && d.stat {
				return usageError{errors.New("--patch and --stat exclude one another")}
			}
			return d.run(cmd, args)
		},
		ValidArgsFunction: a.completeStates,
	}
	cmd.Flags().BoolVarP(&d.patch, "patch", "p", false, "print a patch, which git can apply")
	cmd.Flags().BoolVar(&d.stat, "stat", false, "print how many lines each file gained and lost")
	cmd.Flags().BoolVar(&d.exitCode, "exit-code", false, "exit with status 1 if anything changed")
	return cmd
}

func (d *differ) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	name, states := splitState(args[0])
	from, to, _ := strings.Cut(states, "..")
	paths := args[1:]
	if states == "" && len(paths) > 0 && isRange(paths[0]) {
		from, to, _ = strings.Cut(paths[0], "..")
		paths = paths[1:]
	}
	e, err := d.a.engine(ctx)
	if err != nil {
		return err
	}
	if paths, err = inSandbox(e, name, paths); err != nil {
		return err
	}
	changes, err := e.Diff(ctx, name, from, to)
	if err != nil {
		return err
	}
	defer changes.Close()
	limit(changes, paths)
	if err := changes.FindRenames(ctx); err != nil {
		return err
	}
	if err := d.print(cmd, changes); err != nil {
		return err
	}
	if d.exitCode && changes.Len() > 0 {
		return errSilent
	}
	return nil
}

// isRange tells from..to from a path: a path has a slash.
func isRange(s string) bool {
	return strings.Contains(s, "..") && !strings.Contains(s, "/") && s != ".."
}

func (d *differ) print(cmd *cobra.Command, changes *engine.Changes) error {
	u := d.a.ui
	ctx := cmd.Context()
	switch {
	case u.json && !d.patch:
		return u.result(documentOf(changes), nil)
	case d.patch:
		return printPatch(ctx, u.out, changes, isTerminal(u.out))
	case d.stat:
		return printStat(ctx, u.out, changes, width(u.out))
	}
	most := 0
	if isTerminal(u.out) {
		most = 4 * screenful
	}
	return u.result(nil, func(w io.Writer) error { return printTable(w, changes, most, cmd.CommandPath()+" … | less") })
}

// inSandbox makes paths absolute: relative to this directory where it lies in
// the sandbox's workspace, else to the workspace.
func inSandbox(e *engine.Engine, name string, paths []string) ([]string, error) {
	workspace, err := e.WorkspaceOf(name)
	if err != nil {
		return nil, err
	}
	from := startingPoint(workspace)
	abs := make([]string, 0, len(paths))
	for _, p := range paths {
		if p == "" {
			return nil, usageError{errors.New("an empty path")}
		}
		if !filepath.IsAbs(p) {
			p = filepath.Join(from, p)
		}
		abs = append(abs, throughLinks(filepath.Clean(p), workspace))
	}
	return abs, nil
}

// startingPoint is this directory where it lies in the workspace, by whatever
// symbolic links the shell went, else the workspace.
func startingPoint(workspace string) string {
	cwd, err := workdir()
	if err == nil {
		cwd, err = filepath.EvalSymlinks(cwd)
	}
	if err == nil && within(cwd, workspace) {
		return cwd
	}
	return workspace
}

// throughLinks is what path leads to where that lies in the workspace though
// path does not. Its last element may be a link itself, or not there.
func throughLinks(path, workspace string) string {
	if within(path, workspace) {
		return path
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && within(dir, workspace) {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// within reports whether path is dir or lies beneath it; both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// limit leaves the changes at paths and beneath them; none means all.
func limit(changes *engine.Changes, paths []string) {
	if len(paths) == 0 {
		return
	}
	for i, p := range changes.Parts {
		var kept []diff.Change
		for _, c := range p.Changes {
			for _, path := range paths {
				if within(filepath.Join(p.Root, c.Path), path) {
					kept = append(kept, c)
					break
				}
			}
		}
		changes.Parts[i].Changes = kept
	}
}

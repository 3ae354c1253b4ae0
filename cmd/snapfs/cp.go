package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/workflow/copier"
	"github.com/spf13/cobra"
)

func newCp(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "cp sandbox:path path | path sandbox:path",
		Short: "copy files between a sandbox and the real tree",
		Long: `Copies a file or a directory with everything in it, from a sandbox or into one. If the
destination is a directory, the copy goes into it, else it gets that name. Files that are
in its way are replaced.

In a sandbox, a relative path starts at its workspace, or at the current directory if it
lies there. Write a real path with a colon as ./a:b. Modes and times stay; the copy belongs to
the user that makes it, and devices, pipes and sockets are left out. In the sandbox the
program tar does the work; whatever the sandbox sends in its place, nothing changes
beside the copy. What needs approval in a promotion needs none here: look at a copy
before something runs it.`,
		Example:           "  snapfs cp fix:out/report.html .\n  snapfs cp ~/data.csv fix:/tmp",
		ValidArgsFunction: a.completeThenFiles,
		Args:              exactly("source", "destination"),
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			fromName, from, out := insidePath(args[0])
			toName, to, in := insidePath(args[1])
			if out == in {
				return usageError(errors.New("write one of the two paths as sandbox:path"))
			}
			do, name, inner, outer := copier.In, toName, &to, &from
			if out {
				do, name, inner, outer = copier.Out, fromName, &from, &to
			}
			var err error
			if *inner, err = pathIn(e, name, *inner); err == nil {
				*outer, err = absolute(*outer)
			}
			if err != nil {
				return err
			}
			c, err := do(ctx, e, name, from, to)
			if err != nil {
				return err
			}
			for _, path := range c.Skipped {
				a.ui.notice("not copied, as it is no file, directory or link: " + path)
			}
			return a.ui.say(c, fmt.Sprintf("%s to %s", count(c.Files, "file"), report.Printable(c.To)))
		}),
	}
}

// insidePath splits an argument sandbox:path of `snapfs cp`. ok is false for a path of the real tree, which
// has a slash before its first colon, or no colon.
func insidePath(arg string) (name, path string, ok bool) {
	name, path, ok = strings.Cut(arg, ":")
	if !ok || strings.Contains(name, "/") {
		return "", arg, false
	}
	return name, path, true
}

// pathIn returns path as an absolute path in the sandbox called name, as inSandbox does. "" means the
// directory at which relative paths start.
func pathIn(e *engine.Engine, name, path string) (string, error) {
	if path == "" {
		path = "."
	}
	list, err := inSandbox(e, name, []string{path})
	if err != nil {
		return "", err
	}
	return list[0], nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence"
	"github.com/spf13/cobra"
)

func newRm(a *app) *cobra.Command {
	var every, anywhere, yes bool
	cmd := &cobra.Command{
		Use:   "rm sandbox...",
		Short: "remove sandboxes and end their processes",
		Long: `Ends a sandbox's processes and removes it. The name is free at once; snapfs frees the
disk space in the background.

--all removes the sandboxes of this workspace (the git work tree around the current
directory, or the current directory), and with --any those of all workspaces. It prints
the name of each sandbox that it removed, and asks first on a terminal.`,
		Example:           "  snapfs rm fix fix-2\n  snapfs rm --all\n  snapfs rm --all --any --yes",
		ValidArgsFunction: a.completeSandboxes,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case every == (len(args) > 0):
				return usageError(errors.New("rm requires sandbox names or --all"))
			case anywhere && !every:
				return usageError(errors.New("--any requires --all"))
			}
			return nil
		},
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			if every {
				return a.removeAll(ctx, e, anywhere, yes)
			}
			removed, err := removeEach(ctx, e, args)
			return errors.Join(err, a.ui.result(removed, func(io.Writer) error { return nil }))
		}),
	}
	cmd.Flags().BoolVar(&every, "all", false, "remove every sandbox of this workspace")
	cmd.Flags().BoolVar(&anywhere, "any", false, "with --all, remove the sandboxes of all workspaces")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "with --all, do not ask")
	return cmd
}

// removeAll removes the sandboxes of the workspace of the current directory, or with anywhere all sandboxes,
// and prints their names. It asks the person first, unless yes is set.
func (a *app) removeAll(ctx context.Context, e *engine.Engine, anywhere, yes bool) error {
	var workspaces []string
	if !anywhere {
		var err error
		if workspaces, err = workspacesHere(); err != nil {
			return err
		}
	}
	names, unreadErr := e.Names(workspaces...) // a damaged record must not stop the removal of the others
	if len(names) > 0 && !yes && !a.ui.agrees("remove "+strings.Join(names, ", ")+"?", "end their processes and remove them", "remove nothing") {
		a.ui.notice("removed nothing")
		return nil
	}
	removed, err := removeEach(ctx, e, names)
	return errors.Join(err, unreadErr, a.ui.result(removed, func(w io.Writer) error {
		for _, name := range removed {
			fmt.Fprintln(w, name)
		}
		return nil
	}))
}

// removeEach removes the sandboxes called names, and returns the names of those that it has removed.
func removeEach(ctx context.Context, e *engine.Engine, names []string) ([]string, error) {
	removed := []string{}
	var failures []error
	for _, n := range names {
		if rec, err := e.Catalog().Get(n); err == nil && rec.Policy.Evidence {
			if err := evidence.End(ctx, e, rec); err != nil {
				failures = append(failures, errs.With("ending the evidence of "+n, "", err))
			}
		}
		if err := e.Remove(ctx, n); err != nil {
			failures = append(failures, err)
			continue
		}
		removed = append(removed, n)
	}
	return removed, errors.Join(failures...)
}

// A nameDocument is the JSON form of commands that only name the sandbox that they have changed.
type nameDocument struct {
	Name string `json:"name"`
}

// A sandboxDocument is the JSON form of commands that only name the sandbox that they have found.
type sandboxDocument struct {
	Sandbox string `json:"sandbox"`
}

func newStop(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "stop sandbox",
		Short:             "end a sandbox's processes; its files stay",
		Example:           "  snapfs stop fix",
		ValidArgsFunction: a.completeSandbox,
		Args:              exactly("sandbox"),
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			if err := e.Supervise.Stop(ctx, args[0]); err != nil {
				return err
			}
			return a.ui.result(nameDocument{args[0]}, func(io.Writer) error { return nil })
		}),
	}
}

func newGc(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "gc",
		Short: "clean up after killed commands and free space now",
		Long: `Cleans up after killed commands, removes data that no sandbox refers to, and frees its
space. snapfs does this in the background after other commands; gc waits until it is
done. It leaves what a damaged record may still name, says which, and exits with 8.`,
		Args: exactly(),
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, _ []string) error {
			if err := e.AwaitSweeper(ctx); err != nil {
				return err
			}
			freeLittle()
			c, err := e.Collect(ctx) // one object that cannot be cleaned up does not stop the others
			return errors.Join(err, a.ui.say(c, fmt.Sprintf("repaired %s, removed %s that nothing refers to",
				count(c.Mended, "command"), count(c.Snapshots, "base"))))
		}),
	}
}

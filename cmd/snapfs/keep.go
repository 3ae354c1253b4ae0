package main

import (
	"context"
	"io"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/spf13/cobra"
)

func newKeep(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "keep sandbox",
		Short: "keep a sandbox that a run left for a day",
		Long: `Makes a sandbox stay that snapfs run has kept for a day because nobody had decided. A
limit remove-after that somebody has set remains; snapfs limits changes it.`,
		Example:           "  snapfs keep $(snapfs last)",
		ValidArgsFunction: a.completeSandbox,
		Args:              exactly("sandbox"),
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			l, err := e.Claim(ctx, args[0])
			if err != nil {
				return err
			}
			if l.RemoveAfter > 0 {
				a.ui.notice("kept " + args[0] + "; its limit remove-after " + units.FormatDuration(l.RemoveAfter) + " remains")
				a.ui.hint("snapfs limits " + errs.Quoted(args[0]) + " --set remove-after=none")
			} else {
				a.ui.notice("kept " + args[0])
			}
			return a.ui.result(sandboxDocument{args[0]}, func(io.Writer) error { return nil })
		}),
	}
}

func newLast(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "last",
		Short: "print the sandbox that the last run left",
		Long: `Prints the name of the sandbox that the last snapfs run of this workspace (the git work
tree around the current directory, or the current directory) has left, whether it was
kept with --keep, by a person, or for a day because nobody had decided.`,
		Example: "  snapfs run -- make test | tee log; snapfs diff $(snapfs last)\n  snapfs keep $(snapfs last)",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.onlyReads = true
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			workspaces, err := workspacesHere()
			if err != nil {
				return err
			}
			name, err := e.LastRun(workspaces...)
			if err != nil {
				return err
			}
			return a.ui.say(sandboxDocument{name}, name)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

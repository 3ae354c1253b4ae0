package main

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/agenthook"
	"github.com/snapfs/snapfs/workflow/view"
	"github.com/spf13/cobra"
)

// An openDocument is the JSON form of `snapfs open`, which shows a sandbox's workspace in a directory of the
// host.
type openDocument struct {
	// Sandbox is the sandbox's name, and Path the directory of the host that shows its workspace, "" once it is closed.
	Sandbox string `json:"sandbox"`
	Path    string `json:"path"`
	// ReadOnly is set if writes at Path fail.
	ReadOnly bool `json:"read_only"`
}

func newOpen(a *app) *cobra.Command {
	var readOnly, closing bool
	cmd := &cobra.Command{
		Use:   "open sandbox",
		Short: "show a sandbox's workspace at a path, for an editor or a file manager",
		Long: `Prints a directory of this machine that shows a sandbox's workspace, for programs outside of the
sandbox: an editor, a file manager, diff. What they write there is written in the sandbox,
unless --read-only is set. The sandbox runs until "snapfs open --close", or until it is stopped
or removed; the directory ends with it.

Nothing in the directory can be executed, no symbolic link leads out of it, and git's
configuration in it names no program (docs/agents.md). An editor may run commands from a project's
own settings: turn those off before you open a sandbox that you do not trust. snapfs open requires
/dev/fuse and, without root, fusermount3.`,
		Example:           "  code \"$(snapfs open fix)\"\n  diff -r . \"$(snapfs open --read-only fix)\"\n  snapfs open --close fix",
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			if closing && readOnly {
				return usageError(errors.New("--read-only and --close exclude one another"))
			}
			if l, err := agenthook.LeaseOf(e, args[0]); err != nil {
				return err
			} else if l != nil && !l.Ended && (closing || readOnly) {
				return errs.New("opening", args[0], errs.ErrBusy, "a coding agent works in it; its view closes when the session ends", "snapfs stop "+errs.Quoted(args[0]))
			}
			if closing {
				if err := view.Hide(ctx, e, args[0]); err != nil {
					return err
				}
				return a.ui.say(openDocument{Sandbox: args[0]}, "closed "+args[0])
			}
			path, err := view.Show(ctx, e, viewer(a), args[0], readOnly)
			if err != nil {
				return err
			}
			return a.ui.say(openDocument{args[0], path, readOnly}, path)
		}),
	}
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "refuse writes at the path")
	cmd.Flags().BoolVar(&closing, "close", false, "close the directory again")
	return cmd
}

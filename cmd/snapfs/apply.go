package main

import (
	"context"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/spf13/cobra"
)

func newApply(a *app) *cobra.Command {
	var flags selectFlags
	var o reconcile.PromoteOptions
	cmd := &cobra.Command{
		Use:   "apply [flags] sandbox [path...]",
		Short: "apply a sandbox's changes to the real tree",
		Long: `Applies a sandbox's changes of its workspace to the real tree: all of them or none.
With paths it applies only the changes there; a path may lie outside the workspace.
It is "snapfs promote" without a merge: if the real tree has changed at one of these
places since the sandbox was made, apply changes nothing and lists every such path. The
sandbox stays, and applying it again is harmless. "snapfs undo" restores the target as
long as nobody has changed the result.

Changes that can run code later, or widen rights, need approval by name: git hooks and
configuration, shell profiles, scheduled jobs and services, login and sudo files,
settings of editors and build servers, set-id bits, devices and file capabilities.
Without it apply changes nothing, lists them by reason and prints the command that
approves them ("snapfs help held"). That command has --plan, so that it applies just
what was listed, and nothing that the sandbox changes afterwards.

Relative paths start at the workspace, or at the current directory if it lies in the
workspace. A path may be a pattern as in a gitignore file, such as '**/*.md'. One that
matches no change is an error.`,
		Example: `  snapfs apply fix
  snapfs apply fix --dry-run
  snapfs apply fix src /etc/hosts
  snapfs apply fix --allow .git --allow '.github/*'`,
		Args:              atLeast("sandbox"),
		ValidArgsFunction: a.completeThenFiles,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) (err error) {
			flags.only = args[1:]
			if o.PlanOptions, err = flags.options(e, args[0]); err != nil {
				return err
			}
			o.Drift = reconcile.RefuseDrift
			return a.promote(ctx, e, args[0], o, applyWords)
		}),
	}
	cmd.Flags().StringVar(&o.Plan, "plan", "", "apply only if the plan has this `fingerprint`")
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "n", false, "check only, change nothing")
	flags.addAllow(cmd)
	return cmd
}

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/spf13/cobra"
)

func newApply(a *app) *cobra.Command {
	var o reconcile.ApplyOptions
	var allow []string
	cmd := &cobra.Command{
		Use:   "apply [flags] sandbox [path...]",
		Short: "apply a sandbox's changes to the real tree",
		Long: `Applies a sandbox's changes of its workspace to the real tree: all of them or none.
With paths it applies only the changes there; a path may lie outside the workspace.
If the real tree has changed at one of these places since the sandbox was made, apply
changes nothing and lists every such path. The sandbox stays, and applying it again is
harmless. "snapfs undo" restores the target as long as nobody has changed the result.

Changes that can run code later, or widen rights, need approval by name: git hooks and
configuration, shell profiles, scheduled jobs and services, login and sudo files,
settings of editors and build servers, set-id bits, devices and file capabilities.
docs/held.md lists them.

Relative paths start at the workspace, or at the current directory if it lies in the
workspace.`,
		Example: `  snapfs apply fix
  snapfs apply fix --dry-run
  snapfs apply fix src /etc/hosts
  snapfs apply fix --allow .git --allow '.github/*'`,
		Args:              atLeast("sandbox"),
		ValidArgsFunction: a.completeThenFiles,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) (err error) {
			if o.Paths, err = inSandbox(e, args[0], args[1:]); err != nil {
				return err
			}
			if o.Allow.Paths, err = inSandbox(e, args[0], allow); err != nil {
				return err
			}
			applied, err := e.Reconcile.Apply(ctx, args[0], o)
			if err != nil {
				return err
			}
			return a.ui.result(applied, func(w io.Writer) error {
				if o.DryRun {
					_, err := fmt.Fprintf(w, "%s would be applied\n", count(applied.Changes, "change"))
					return err
				}
				a.ui.applied(applied, "not applied; name the path to apply it")
				return nil
			})
		}),
	}
	f := cmd.Flags()
	f.BoolVarP(&o.DryRun, "dry-run", "n", false, "check only, change nothing")
	f.StringArrayVar(&allow, "allow", nil, "approve changes at or below this `path` or pattern")
	f.BoolVar(&o.Allow.SetID, "allow-setid", false, "approve set-user-id and set-group-id bits")
	f.BoolVar(&o.Allow.Devices, "allow-devices", false, "approve device nodes")
	f.BoolVar(&o.Allow.Capabilities, "allow-capabilities", false, "approve file capabilities")
	return cmd
}

// applied prints the result of an apply. elsewhere is a text about the changes outside the
// workspace.
func (u *ui) applied(a reconcile.Applied, elsewhere string) {
	done := "applied " + count(a.Changes, "change")
	if a.ID != "" {
		done += " (snapfs undo " + a.ID + ")"
	}
	u.notice(done)
	if n := len(a.Already); n > 0 {
		u.notice(count(n, "path") + " already had the result")
	}
	for _, path := range a.Skipped {
		u.notice("not applied, as only its server can create it: " + path)
	}
	if a.Elsewhere > 0 {
		u.notice(count(a.Elsewhere, "change") + " elsewhere " + elsewhere)
	}
}

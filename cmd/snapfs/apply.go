package main

import (
	"fmt"
	"io"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/spf13/cobra"
)

func newApply(a *app) *cobra.Command {
	var o reconcile.ApplyOptions
	var allow []string
	cmd := &cobra.Command{
		Use:   "apply [flags] sandbox [path...]",
		Short: "bring a sandbox's changes to the real tree",
		Long: `Brings what a sandbox changed in its workspace to the real tree, wholly or not at
all; or only what it changed at the paths named, which may lie elsewhere. Where
something of the real tree has moved on since the sandbox was made, nothing is
touched, and every such path is named. The sandbox stays, and applying again is
harmless. "snapfs undo" takes it back, as long as nobody has changed the result: what
was there is kept beside the target, on its own filesystem.

What runs by itself later is held back, and named, until it is allowed by name:
what lies in a repository's own directory, hooks, shell profiles, what runs at a
time or as a service, who may log in, configuration of editors and of build
servers; set-id bits, devices and file capabilities. docs/held.md is the list.

Relative paths are beneath the workspace, or beneath this directory where it
lies in the workspace.`,
		Example: `  snapfs apply fix
  snapfs apply fix --dry-run
  snapfs apply fix src /etc/hosts
  snapfs apply fix --allow .git --allow '.github/*'`,
		Args:              atLeast("sandbox"),
		ValidArgsFunction: a.completeThenFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			if o.Paths, err = inSandbox(e, args[0], args[1:]); err != nil {
				return err
			}
			if o.Allow.Paths, err = inSandbox(e, args[0], allow); err != nil {
				return err
			}
			applied, err := e.Reconcile.Apply(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			return a.ui.result(applied, func(w io.Writer) error {
				if o.DryRun {
					_, err := fmt.Fprintf(w, "%s would be applied\n", count(applied.Changes, "change"))
					return err
				}
				a.ui.applied(applied, "not applied; name the path to have it")
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.DryRun, "dry-run", "n", false, "only say whether it could be done")
	f.StringArrayVar(&allow, "allow", nil, "carry what is held back at this `path`, or at those of a pattern, and beneath")
	f.BoolVar(&o.Allow.SetID, "allow-setid", false, "carry set-user-id and set-group-id bits")
	f.BoolVar(&o.Allow.Devices, "allow-devices", false, "carry device nodes")
	f.BoolVar(&o.Allow.Capabilities, "allow-capabilities", false, "carry file capabilities")
	return cmd
}

// applied tells what was carried back, and what was not: elsewhere says what
// becomes of changes outside the workspace.
func (u *ui) applied(a reconcile.Applied, elsewhere string) {
	done := "applied " + count(a.Changes, "change")
	if a.ID != "" {
		done += " (snapfs undo " + a.ID + ")"
	}
	u.notice(done)
	if n := len(a.Already); n > 0 {
		u.notice(count(n, "path") + " were as they should be already")
	}
	for _, path := range a.Skipped {
		u.notice("not carried, as only its server can make it: " + path)
	}
	if a.Elsewhere > 0 {
		u.notice(count(a.Elsewhere, "change") + " elsewhere " + elsewhere)
	}
}

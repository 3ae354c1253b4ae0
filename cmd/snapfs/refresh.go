package main

import (
	"io"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/spf13/cobra"
)

func newRefresh(a *app) *cobra.Command {
	var answers answerFlags
	var stop bool
	cmd := &cobra.Command{
		Use:   "refresh [flags] sandbox",
		Short: "bring what has happened to the real tree into a sandbox",
		Long: `Makes the real tree as it is now the base of a sandbox, and lays what the sandbox
changed over it. Where both changed the same, the conflict is in the sandbox
afterwards, to be resolved and tested there: a text has both sides between marks,
anything else is as the sandbox had it. Until it is resolved nothing of it is
promoted.

A conflict is resolved by an edit that removes the marks, or by an answer:
refresh again with --mine, --theirs or a merge tool for its path. Named states
keep the base that they have; rolling back to one brings it back.`,
		Example: `  snapfs refresh fix
  snapfs refresh fix --mine '*.lock' --theirs docs
  snapfs refresh fix --tool 'meld --output "$OUT" "$MINE" "$BASE" "$REAL"'`,
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			var o reconcile.RefreshOptions
			if o.Mine, o.Theirs, err = answers.in(e, args[0]); err != nil {
				return err
			}
			o.Tool, o.Terminal = answers.tool, a.ui.terminal()
			if stop {
				if err := e.Supervise.Stop(cmd.Context(), args[0]); err != nil {
					return err
				}
			}
			r, err := e.Reconcile.Refresh(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			return a.ui.result(r, func(io.Writer) error {
				a.ui.refreshed(r)
				return nil
			})
		},
	}
	answers.add(cmd)
	cmd.Flags().BoolVar(&stop, "stop", false, "end the processes that run in it first")
	return cmd
}

// refreshed tells what a refresh did, and what is left to do.
func (u *ui) refreshed(r reconcile.Refreshed) {
	switch {
	case r.Resolved > 0:
		u.notice("resolved " + count(r.Resolved, "conflict") + " in " + r.Sandbox)
	case r.Merged > 0:
		u.notice(r.Sandbox + " is up to date; " + count(r.Merged, "path") + " that both have changed")
	default:
		u.notice(r.Sandbox + " is up to date")
	}
	u.conflicts(r.Sandbox, r.Conflicts)
}

// conflicts tells what is still to be resolved in a sandbox.
func (u *ui) conflicts(name string, conflicts []reconcile.Conflict) {
	for _, c := range conflicts {
		u.notice("conflict: " + c.Path + ": " + c.Why)
	}
	if len(conflicts) > 0 {
		u.hint("snapfs shell "+name, "snapfs refresh "+name+" --mine PATH --theirs PATH")
	}
}

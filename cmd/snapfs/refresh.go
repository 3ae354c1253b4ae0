package main

import (
	"context"
	"io"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/spf13/cobra"
)

func newRefresh(a *app) *cobra.Command {
	var answers answerFlags
	var stop bool
	cmd := &cobra.Command{
		Use:   "refresh [flags] sandbox",
		Short: "merge the real tree's changes into a sandbox",
		Long: `Makes the present real tree the base of a sandbox, and merges the sandbox's changes on
top. If both sides changed the same place, the conflict is in the sandbox afterwards:
a text file has both versions between conflict markers, anything else is the sandbox's
version. snapfs promotes no path with an unresolved conflict.

Resolve a conflict by editing the markers away, or refresh again with --mine, --theirs
or a merge tool for its path. A named snapshot has the base of its time; rolling back
restores both.`,
		Example: `  snapfs refresh fix
  snapfs refresh fix --mine '*.lock' --theirs docs
  snapfs refresh fix --tool 'meld --output "$OUT" "$MINE" "$BASE" "$REAL"'`,
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) (err error) {
			var o reconcile.RefreshOptions
			if o.Mine, o.Theirs, err = answers.in(e, args[0]); err != nil {
				return err
			}
			o.Tool, o.Terminal = answers.tool, a.ui.terminal()
			if stop {
				if err := e.Supervise.Stop(ctx, args[0]); err != nil {
					return err
				}
			}
			r, err := e.Reconcile.Refresh(ctx, args[0], o)
			if err != nil {
				return err
			}
			return a.ui.result(r, func(io.Writer) error {
				a.ui.refreshed(r)
				return nil
			})
		}),
	}
	answers.add(cmd)
	cmd.Flags().BoolVar(&stop, "stop", false, "end the sandbox's processes first")
	return cmd
}

// refreshed prints the result of bringing a sandbox up to date with the real tree, with its conflicts.
func (u *ui) refreshed(r reconcile.Refreshed) {
	text := r.Sandbox + " is up to date"
	switch {
	case r.Resolved > 0:
		text = "resolved " + count(r.Resolved, "conflict") + " in " + r.Sandbox
	case len(r.Conflicts) > 0:
		text = r.Sandbox + " has a new base"
	}
	if r.Merged > 0 {
		text += ", " + count(r.Merged, "path") + " changed on both sides"
	}
	if n := len(r.Conflicts); n > 0 {
		text += ", " + count(n, "conflict") + " to resolve"
	}
	u.notice(text)
	u.conflicts(r.Sandbox, r.Conflicts)
}

// conflicts prints the unresolved conflicts of the sandbox called name, and the commands that resolve them.
func (u *ui) conflicts(name string, conflicts []reconcile.Conflict) {
	for _, c := range conflicts {
		u.notice("conflict: " + c.Path + ": " + c.Why)
	}
	if len(conflicts) > 0 {
		u.hint("snapfs shell "+name, "snapfs refresh "+name+" --mine PATH --theirs PATH")
	}
}

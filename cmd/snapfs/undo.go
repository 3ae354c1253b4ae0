package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/spf13/cobra"
)

func newUndo(a *app) *cobra.Command {
	var list, forget, anywhere, yes bool
	cmd := &cobra.Command{
		Use:   "undo [promotion]",
		Short: "undo an apply or a promotion",
		Long: `Undoes the last apply or promotion of this workspace (the git work tree around the
current directory, or the current directory), or the named one, as long as nobody has
changed its result; otherwise it changes nothing and lists the changed paths. It prints
what it will undo, and asks on a terminal.

The sandbox, if it still exists, keeps its changes. The last ten of all workspaces can be
undone; of those that changed the same place, the newest first. Their undo data takes
disk space; --forget deletes it.`,
		Example:           "  snapfs undo\n  snapfs undo --any\n  snapfs undo --list\n  snapfs undo --forget apply-4x1k0z",
		Args:              atMost("promotion"),
		ValidArgsFunction: a.completePromotion,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := optionalName(args, 0)
			if err != nil {
				return err
			}
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			if list {
				return a.listPromotions(e)
			}
			if forget {
				if id == "" {
					return usageError(errors.New("--forget requires a promotion's name; see snapfs undo --list"))
				}
				return e.Reconcile.ForgetUndo(cmd.Context(), id)
			}
			id, err = a.chooseUndo(e, id, anywhere, yes)
			if err != nil || id == "" {
				return err
			}
			u, err := e.Reconcile.Undo(cmd.Context(), id)
			if err != nil {
				return err
			}
			return a.ui.result(u, func(io.Writer) error {
				a.ui.notice("undid " + count(u.Changes, "change") + " of " + u.Sandbox + " in " + strings.Join(u.Paths, ", "))
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&list, "list", "l", false, "list what can be undone")
	cmd.Flags().BoolVar(&anywhere, "any", false, "undo the last apply or promotion of any workspace")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&forget, "forget", false, "delete this promotion's undo data; its result stays")
	return cmd
}

// chooseUndo prints which apply or promotion is to be undone, and returns its identifier. It returns
// "" if the person declined.
func (a *app) chooseUndo(e *engine.Engine, id string, anywhere, yes bool) (string, error) {
	var workspaces []string
	if id == "" && !anywhere {
		var err error
		if workspaces, err = workspacesHere(); err != nil {
			return "", err
		}
	}
	group, err := e.Reconcile.ToUndo(id, workspaces)
	if err != nil {
		return "", err
	}
	for _, p := range group {
		a.ui.notice("to undo: " + p.Group + " of " + p.Sandbox + ", " + age(time.Since(p.When)) + " ago: " + count(p.Applied, "change") + " in " + report.Printable(p.Path))
	}
	if !yes && !a.ui.agrees("undo this?", "restore what was there before", "change nothing") {
		a.ui.notice("undid nothing")
		return "", nil
	}
	return group[0].Group, nil
}

// A promotionRow is the JSON form of a promotion that can be undone.
type promotionRow struct {
	ID      string    `json:"id"`
	Sandbox string    `json:"sandbox"`
	Path    string    `json:"path"`
	When    time.Time `json:"when"`
	Changes int       `json:"changes"`
}

func rowOf(p promote.Promotion) promotionRow {
	return promotionRow{p.Group, p.Sandbox, p.Path, p.When, p.Applied}
}

func (a *app) listPromotions(e *engine.Engine) error {
	all, err := e.Reconcile.Promotions()
	if err != nil {
		return err
	}
	rows := []promotionRow{}
	for _, p := range all {
		rows = append(rows, rowOf(p))
	}
	return a.ui.result(rows, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, r := range rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s ago\n", r.ID, r.Sandbox, report.Printable(r.Path), count(r.Changes, "change"), age(time.Since(r.When)))
		}
		return t.Flush()
	})
}

// completePromotion completes the names of promotions that can be undone.
func (a *app) completePromotion(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return reconcile.PromotionsIn(a.stateDir()), noFiles
}

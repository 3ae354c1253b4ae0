package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/spf13/cobra"
)

func newUndo(a *app) *cobra.Command {
	var list, forget, anywhere, yes, turn bool
	cmd := &cobra.Command{
		Use:   "undo [promotion] [path...]",
		Short: "undo an apply or a promotion, or some of its paths",
		Long: `Undoes the last apply or promotion of this workspace (the git work tree around the
current directory, or the current directory), or the named one, as long as nobody has
changed its result; otherwise it changes nothing and lists the changed paths. It prints
what it will undo, and asks on a terminal.

With paths it undoes only these files, and directories with all that is in them. The rest
can be undone later. Commits are undone with the whole promotion only.

The sandbox, if it still exists, keeps its changes. The last ten of all workspaces can be
undone; of those that changed the same place, the newest first. snapfs redo does again
what was undone. The data for both takes disk space; --forget deletes it. It also gives up an
apply that was killed and whose directory never comes back; snapfs doctor names it.

--turn undoes in a sandbox instead of the real tree: it restores the files from before the
last prompt of the agent that works in the named sandbox, or in the newest one of this
workspace. It is the same as snapfs rollback --turn.`,
		Example:           "  snapfs undo\n  snapfs undo src/main.c docs\n  snapfs undo --any\n  snapfs undo --list\n  snapfs undo --forget apply-4x1k0z",
		ValidArgsFunction: a.completePromotion,
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(args, "") {
				return usageError(errEmptyName)
			}
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			switch {
			case turn && (list || forget || anywhere || len(args) > 1):
				return usageError(errors.New("--turn takes at most the name of a sandbox"))
			case turn:
				return a.undoTurn(cmd.Context(), e, args)
			case list:
				return a.listPromotions(e.Reconcile.Promotions())
			case forget && len(args) != 1:
				return usageError(errors.New("--forget requires a promotion's name; see snapfs undo --list"))
			case forget:
				return a.forgetPromotion(cmd.Context(), e, args[0], yes)
			}
			id, paths, err := a.undoArguments(e, args)
			if err != nil {
				return err
			}
			group, err := a.chooseUndo(e, id, anywhere)
			if err != nil || !a.agreesTo("undo", "undid", "restore what was there before", group, len(paths) > 0, yes) {
				return err
			}
			u, err := e.Reconcile.UndoPaths(cmd.Context(), group[0].Group, paths)
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
	cmd.Flags().BoolVar(&turn, "turn", false, "undo the last turn of an agent in its sandbox")
	cmd.Flags().BoolVar(&forget, "forget", false, "delete this promotion's data for undo and redo; its result stays")
	return cmd
}

func newRedo(a *app) *cobra.Command {
	var list, anywhere, yes bool
	cmd := &cobra.Command{
		Use:   "redo",
		Short: "do again what the last undo took back",
		Long: `Does again what the last snapfs undo of this workspace (the git work tree around the
current directory, or the current directory) took back, as long as nobody has changed the
same files since; otherwise it changes nothing and lists the changed paths. It prints what
it will do again, and asks on a terminal. The undo before that one is next. snapfs undo
takes it back again, and undo --forget deletes the data for it.`,
		Example: "  snapfs undo\n  snapfs redo\n  snapfs redo --list",
		Args:    exactly(),
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, _ []string) error {
			if list {
				return a.listPromotions(e.Reconcile.Undones())
			}
			var workspaces []string
			if !anywhere {
				var err error
				if workspaces, err = workspacesHere(); err != nil {
					return err
				}
			}
			group, err := e.Reconcile.ToRedo(workspaces)
			if err != nil || !a.agreesTo("redo", "did", "put the promoted files back", group, false, yes) {
				return err
			}
			u, err := e.Reconcile.Redo(ctx, group)
			if err != nil {
				return err
			}
			return a.ui.result(u, func(io.Writer) error {
				a.ui.notice("did again " + count(u.Changes, "change") + " of " + u.Sandbox + " in " + strings.Join(u.Paths, ", "))
				return nil
			})
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVarP(&list, "list", "l", false, "list what can be done again, of all workspaces")
	cmd.Flags().BoolVar(&anywhere, "any", false, "do the last undo of any workspace again")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// undoArguments splits the arguments of `snapfs undo` into the name of a promotion, if the first is one, and
// paths, which it makes absolute.
func (a *app) undoArguments(e *engine.Engine, args []string) (id string, paths []string, err error) {
	all, err := e.Reconcile.Promotions()
	if len(args) > 0 && slices.ContainsFunc(all, func(p promote.Promotion) bool { return p.Group == args[0] || p.ID == args[0] }) {
		id, args = args[0], args[1:]
	}
	if len(args) == 0 || err != nil && len(all) == 0 {
		return id, nil, err
	}
	for _, arg := range args {
		path, err := realPath(arg)
		if err != nil {
			return "", nil, err
		}
		paths = append(paths, path)
	}
	return id, paths, nil
}

// chooseUndo returns the promotions to undo: those named id, or if that is "" the last ones of this
// workspace, or with anywhere of any workspace.
func (a *app) chooseUndo(e *engine.Engine, id string, anywhere bool) ([]promote.Promotion, error) {
	var workspaces []string
	if id == "" && !anywhere {
		var err error
		if workspaces, err = workspacesHere(); err != nil {
			return nil, err
		}
	}
	return e.Reconcile.ToUndo(id, workspaces)
}

// agreesTo prints which promotions a command will undo or redo, and reports whether the person agrees. do and
// did are the command's verb, yes explains that answer, some is set if only some paths are affected, and with
// agreed it does not ask.
func (a *app) agreesTo(do, did, yes string, group []promote.Promotion, some, agreed bool) bool {
	for _, p := range rows(group) {
		what := count(p.Changes, "change")
		if some {
			what = "some of " + what
		}
		a.ui.notice("to " + do + ": " + p.ID + " of " + p.Sandbox + ", " + age(time.Since(p.When)) + " ago: " + what + " in " + report.Printable(p.Path))
	}
	if !agreed && len(group) > 0 && !a.ui.agrees(do+" this?", yes, "change nothing") {
		a.ui.notice(did + " nothing")
		return false
	}
	return len(group) > 0
}

// A promotionRow is the JSON form of a promotion that can be undone, in the list of `snapfs undo`.
type promotionRow struct {
	ID      string    `json:"id"`
	Sandbox string    `json:"sandbox"`
	Path    string    `json:"path"`
	When    time.Time `json:"when"`
	Changes int       `json:"changes"`
}

// rows returns the table of promotions that can be undone. Promotions to the same path that are undone
// together (a group) become one row.
func rows(all []promote.Promotion) []promotionRow {
	list := []promotionRow{}
	for _, p := range all {
		same := func(r promotionRow) bool { return r.ID == p.Group && r.Path == p.Path }
		if i := slices.IndexFunc(list, same); i >= 0 {
			list[i].Changes += p.Applied
			continue
		}
		list = append(list, promotionRow{p.Group, p.Sandbox, p.Path, p.When, p.Applied})
	}
	return list
}

func (a *app) listPromotions(all []promote.Promotion, err error) error {
	if err != nil {
		return err
	}
	rows := rows(all)
	return a.ui.result(rows, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, r := range rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s ago\n", r.ID, r.Sandbox, report.Printable(r.Path), count(r.Changes, "change"), age(time.Since(r.When)))
		}
		return t.Flush()
	})
}

// completePromotion completes an argument to the name of a promotion that can be undone.
func (a *app) completePromotion(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return promote.Groups(filepath.Join(a.stateDir(), "promotions")), cobra.ShellCompDirectiveDefault
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/errs"
)

// A workspaceStatus is the result of `snapfs status`. Undo lists the parts of the last promotion, which
// `snapfs undo` would undo.
type workspaceStatus struct {
	Workspace string         `json:"workspace"`
	Sandboxes []engine.Info  `json:"sandboxes"`
	Waiting   []engine.Wait  `json:"waiting"`
	Undo      []promotionRow `json:"undo"`
}

func newStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "show this workspace's sandboxes and what waits for you",
		Long: `Shows the sandboxes of this workspace (the git work tree around the current directory,
or the current directory) as "snapfs ls" does, what waits for a person, each with the
commands that make it go on, and what "snapfs undo" would undo.`,
		Example: "  snapfs status",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.onlyReads = true
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			d, err := readStatus(cmd.Context(), e)
			if d.Workspace == "" {
				return err
			}
			return errors.Join(a.ui.result(d, func(w io.Writer) error { return printStatus(a.ui, w, d) }), err)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

func readStatus(ctx context.Context, e *engine.Engine) (d workspaceStatus, err error) {
	here, err := workspacesHere()
	if err != nil {
		return d, err
	}
	d = workspaceStatus{Workspace: here[0], Sandboxes: []engine.Info{}, Undo: []promotionRow{}}
	infos, err := e.List(ctx, false, here...)
	d.Sandboxes = append(d.Sandboxes, arranged(infos, here)...)
	waiting, werr := e.Waiting(ctx, d.Sandboxes, here)
	d.Waiting = waiting
	group, uerr := e.Reconcile.ToUndo("", here)
	if errors.Is(uerr, errs.ErrNotFound) {
		uerr = nil
	}
	d.Undo = rows(group)
	return d, errors.Join(err, werr, uerr)
}

func printStatus(u *ui, w io.Writer, d workspaceStatus) error {
	fmt.Fprintln(w, "workspace "+report.Printable(d.Workspace))
	if len(d.Sandboxes) == 0 {
		fmt.Fprintln(w, "no sandboxes")
	} else if err := printSandboxes(u, w, d.Sandboxes, false); err != nil {
		return err
	}
	for _, wait := range d.Waiting {
		fmt.Fprintln(w, tame(wait.Sandbox+": "+wait.Text))
		for _, c := range wait.Commands {
			fmt.Fprintln(w, "  "+tame(c))
		}
	}
	for _, u := range d.Undo {
		fmt.Fprintf(w, "last promotion: %s of %s to %s, %s ago\n  snapfs undo %s\n",
			count(u.Changes, "change"), tame(u.Sandbox), report.Printable(u.Path), age(time.Since(u.When)), u.ID)
	}
	return nil
}

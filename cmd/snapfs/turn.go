package main

import (
	"context"
	"io"
	"slices"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/agenthook"
)

// undoTurn undoes the changes that a coding agent has made since its user's last prompt (its last turn), in
// the sandbox args[0] or in the newest one of this workspace.
func (a *app) undoTurn(ctx context.Context, e *engine.Engine, args []string) error {
	name := ""
	if len(args) == 1 {
		name = args[0]
	} else {
		dir, err := workdir()
		if err != nil {
			return err
		}
		here, err := workspacesHere()
		if err != nil {
			return err
		}
		for _, l := range agenthook.Leases(e) {
			if len(l.Checkpoints) > 1 && (slices.Contains(here, l.Workspace) || pathlist.Within(dir, l.View)) {
				name = l.Sandbox
				break
			}
		}
	}
	if name == "" {
		return errs.New("undoing", "", errs.ErrNotFound, "no agent has changed a sandbox of this workspace", "snapfs agent status")
	}
	state, err := agenthook.Undo(ctx, e, name, agenthook.LastTurn)
	if err != nil {
		return err
	}
	return a.ui.result(rolledBack{name, state}, func(io.Writer) error {
		a.ui.notice(name + " is back at " + state)
		return nil
	})
}

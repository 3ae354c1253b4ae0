package main

import (
	"errors"
	"io"

	"github.com/snapfs/snapfs/workflow/agenthook"
	"github.com/spf13/cobra"
)

func newSnapshot(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "snapshot sandbox [state]",
		Short: "record a named snapshot of a sandbox's files",
		Long: `Records the present files of a sandbox under a name, to return to, compare with and
fork from. Running processes pause for that instant.`,
		Example:           "  snapfs snapshot fix before\n  snapfs rollback fix before",
		ValidArgsFunction: a.completeSandbox,
		Args:              between("sandbox", "state"),
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := optionalName(args, 1)
			if err != nil {
				return err
			}
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			m, err := e.Snapshot(cmd.Context(), args[0], state)
			if err != nil {
				return err
			}
			err = a.ui.say(m, m.Name)
			a.behind(cmd.Context(), e, args[0])
			return err
		},
	}
}

// A rolledBack is the JSON form of `snapfs rollback`: a sandbox and the named snapshot to which it has
// returned, "" for its base.
type rolledBack struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

func newRollback(a *app) *cobra.Command {
	var stop, live, turn, call bool
	cmd := &cobra.Command{
		Use:   "rollback sandbox [state]",
		Short: "restore a sandbox's files to a named snapshot or its base",
		Long: `Restores a sandbox's files to a named snapshot, or without one to its base. All named
snapshots stay, so that you can go back and forth. Changes since the last snapshot are
lost.

Rollback is refused while processes run in the sandbox. --stop ends them. --live pauses
them for that instant, and they continue on the restored files: files that they have
open or mapped keep their content, also those that the snapshot does not have, as
unlinked files do. The processes' memory does not change. Only the backend fusecow
supports --live.

In a sandbox that an agent works in (snapfs agent), the agent's own view of the files does
not count as a process, and shows the restored files at once. --call restores the files
from before the last call of a tool, --turn those from before the last prompt; repeated,
they go further back.`,
		Example:           "  snapfs rollback fix before\n  snapfs rollback fix --live\n  snapfs rollback agent-x --turn",
		ValidArgsFunction: a.completeState,
		Args:              between("sandbox", "state"),
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := optionalName(args, 1)
			if err != nil {
				return err
			}
			if stop && live {
				return usageError(errors.New("--stop and --live exclude one another"))
			}
			if (turn || call) && (live || state != "" || turn && call) {
				return usageError(errors.New("--turn, --call, --live and a state exclude one another"))
			}
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			if stop {
				if err := e.Supervise.Stop(cmd.Context(), args[0]); err != nil {
					return err
				}
			}
			switch ctx := cmd.Context(); {
			case turn:
				state, err = agenthook.Undo(ctx, e, args[0], agenthook.LastTurn)
			case call:
				state, err = agenthook.Undo(ctx, e, args[0], agenthook.LastCall)
			case live:
				err = e.RollbackLive(ctx, args[0], state)
			default:
				err = agenthook.Rollback(ctx, e, args[0], state)
			}
			if err != nil {
				return err
			}
			err = a.ui.result(rolledBack{args[0], state}, func(io.Writer) error { return nil })
			a.behind(cmd.Context(), e, args[0])
			return err
		},
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "end the sandbox's processes first")
	cmd.Flags().BoolVar(&live, "live", false, "keep the sandbox's processes running on the restored files")
	cmd.Flags().BoolVar(&turn, "turn", false, "restore the files from before the agent's last prompt")
	cmd.Flags().BoolVar(&call, "call", false, "restore the files from before the agent's last call of a tool")
	return cmd
}

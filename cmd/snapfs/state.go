package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newSnapshot(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "snapshot sandbox [state]",
		Short: "give a sandbox's files as they are now a name",
		Long: `Keeps the present state of a sandbox under a name, to come back to, compare with
and fork from. Processes that run in it stand still for that instant.`,
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
			err = a.ui.result(m, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, m.Name)
				return err
			})
			a.behind(cmd.Context(), e, args[0])
			return err
		},
	}
}

func newRollback(a *app) *cobra.Command {
	var stop, live bool
	cmd := &cobra.Command{
		Use:   "rollback sandbox [state]",
		Short: "make a sandbox's files what they were at a state, or at its base",
		Long: `Makes a sandbox's files what they were at a named state, or, without one, at its
base. All named states stay, so one can go back and forth. Changes since the
last named state are lost.

Where processes run in it, it is refused. With --stop they are ended. With --live
they stand still for that instant, and go on with the files of the state: what they
have open or mapped holds what it held then, what is not in the state lives on for
who has it open, as an unlinked file does. What they have in memory stays. The
backend fusecow can do that.`,
		Example:           "  snapfs rollback fix before\n  snapfs rollback fix --live",
		ValidArgsFunction: a.completeState,
		Args:              between("sandbox", "state"),
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := optionalName(args, 1)
			if err != nil {
				return err
			}
			if stop && live {
				return usageError{errors.New("--stop and --live exclude one another")}
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
			back := e.Rollback
			if live {
				back = e.RollbackLive
			}
			if err := back(cmd.Context(), args[0], state); err != nil {
				return err
			}
			a.behind(cmd.Context(), e, args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "end the processes that run in it first")
	cmd.Flags().BoolVar(&live, "live", false, "have the processes that run in it go on with the files of the state")
	return cmd
}

package main

import (
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
	var stop bool
	cmd := &cobra.Command{
		Use:   "rollback sandbox [state]",
		Short: "make a sandbox's files what they were at a state, or at its base",
		Long: `Makes a sandbox's files what they were at a named state, or, without one, at its
base. All named states stay, so one can go back and forth. Changes since the
last named state are lost.`,
		Example:           "  snapfs rollback fix before\n  snapfs rollback fix",
		ValidArgsFunction: a.completeState,
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
			if stop {
				if err := e.Stop(cmd.Context(), args[0]); err != nil {
					return err
				}
			}
			if err := e.Rollback(cmd.Context(), args[0], state); err != nil {
				return err
			}
			a.behind(cmd.Context(), e, args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "end the processes that run in it first")
	return cmd
}

package main

import (
	"context"

	"github.com/snapfs/snapfs/engine"
	"github.com/spf13/cobra"
)

func newNew(a *app) *cobra.Command {
	var req requestFlags
	cmd := &cobra.Command{
		Use:   "new [flags] [name]",
		Short: "create a named sandbox",
		Long: `Clones this machine's environment as a named sandbox. Run commands in it with snapfs
exec and snapfs shell.`,
		Example: "  snapfs new fix\n  snapfs exec fix -- make test",
		Args:    atMost("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if req.name, err = optionalName(args, 0); err != nil {
				return err
			}
			r, _, err := req.request(cmd.Context(), a)
			if err != nil {
				return err
			}
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			rec, err := e.New(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.ui.say(rec, rec.Name)
		},
	}
	req.add(cmd)
	req.addProve(cmd)
	req.addEvidence(cmd)
	req.addSecret(cmd)
	req.addKeyPoints(cmd)
	return cmd
}

func newFork(a *app) *cobra.Command {
	var room admissionFlags
	cmd := &cobra.Command{
		Use:   "fork sandbox[@state] [name]",
		Short: "create a sandbox from another one's files",
		Long: `Creates a sandbox from the files of another one, as they are now or at a named
snapshot. Running processes of the other sandbox pause for that instant; the new
sandbox has none.`,
		Example:           "  snapfs fork fix fix-2\n  snapfs fork fix@before",
		ValidArgsFunction: a.completeStates,
		Args:              between("sandbox[@state]", "name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, state := splitState(args[0])
			name, err := optionalName(args, 1)
			if err != nil {
				return err
			}
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			when, err := room.admission(a.ui)
			if err != nil {
				return err
			}
			rec, err := e.ForkAdmitted(cmd.Context(), from, state, name, when)
			if err != nil {
				return err
			}
			return a.ui.say(rec, rec.Name)
		},
	}
	room.add(cmd.Flags())
	return cmd
}

func newRename(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rename sandbox name",
		Short: "give a sandbox another name",
		Long: `Gives a sandbox another name. Its files, snapshots and limits stay, and so does the undo
of its promotions. No process may run in it.`,
		Example:           "  snapfs rename fix fix-port",
		ValidArgsFunction: a.completeSandbox,
		Args:              exactly("sandbox", "name"),
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			if err := e.Rename(ctx, args[0], args[1]); err != nil {
				return err
			}
			return a.ui.say(nameDocument{args[1]}, args[1])
		}),
	}
}

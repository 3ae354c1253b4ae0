package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/snapfs/snapfs/engine"
	"github.com/spf13/cobra"
)

func newRm(a *app) *cobra.Command {
	var every bool
	cmd := &cobra.Command{
		Use:   "rm sandbox...",
		Short: "remove sandboxes and end their processes",
		Long: `Ends a sandbox's processes and removes it. The name is free at once; snapfs frees the
disk space in the background.`,
		Example:           "  snapfs rm fix fix-2\n  snapfs rm --all",
		ValidArgsFunction: a.completeSandboxes,
		Args: func(_ *cobra.Command, args []string) error {
			if every == (len(args) > 0) {
				return usageError(errors.New("rm requires sandbox names or --all"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			if every {
				if args, err = e.Names(); err != nil {
					return err
				}
			}
			return removeEach(cmd.Context(), e, args)
		},
	}
	cmd.Flags().BoolVar(&every, "all", false, "remove every sandbox")
	return cmd
}

func removeEach(ctx context.Context, e *engine.Engine, names []string) error {
	var errs []error
	for _, n := range names {
		errs = append(errs, e.Remove(ctx, n))
	}
	return errors.Join(errs...)
}

func newStop(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "stop sandbox",
		Short:             "end a sandbox's processes; its files stay",
		Example:           "  snapfs stop fix",
		ValidArgsFunction: a.completeSandbox,
		Args:              exactly("sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			return e.Supervise.Stop(cmd.Context(), args[0])
		},
	}
}

func newGc(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "gc",
		Short: "clean up after killed commands and free space now",
		Long: `Cleans up after killed commands, removes data that no sandbox refers to, and frees its
space. snapfs does this in the background after other commands; gc waits until it is
done.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			if err := e.AwaitSweeper(cmd.Context()); err != nil {
				return err
			}
			c, err := e.Collect(cmd.Context())
			if err != nil {
				return err
			}
			return a.ui.result(c, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "repaired %s, removed %s that nothing refers to\n",
					count(c.Mended, "command"), count(c.Snapshots, "base"))
				return err
			})
		},
	}
}

package main

import (
	"context"
	"errors"
	"fmt"

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
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) (err error) {
			if every {
				if args, err = e.Names(); err != nil {
					return err
				}
			}
			return removeEach(ctx, e, args)
		}),
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
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			return e.Supervise.Stop(ctx, args[0])
		}),
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
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, _ []string) error {
			if err := e.AwaitSweeper(ctx); err != nil {
				return err
			}
			c, err := e.Collect(ctx)
			if err != nil {
				return err
			}
			return a.ui.say(c, fmt.Sprintf("repaired %s, removed %s that nothing refers to",
				count(c.Mended, "command"), count(c.Snapshots, "base")))
		}),
	}
}

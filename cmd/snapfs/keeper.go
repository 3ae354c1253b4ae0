package main

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise/ahead"
	"github.com/snapfs/snapfs/engine/supervise/standby"
	"github.com/spf13/cobra"
)

// newSupervisor returns the hidden command of the process that owns a sandbox's namespaces (the supervisor).
// The engine starts it with the first command in the sandbox.
func newSupervisor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "keeper state-directory sandbox",
		Short:  "supervise a sandbox's processes",
		Hidden: true,
		Args:   exactly("state directory", "sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.openAsChild(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return e.Supervise.Supervise(cmd.Context(), args[1])
		},
	}
}

// newStandby returns the hidden command of a process that supervises one sandbox after another for `snapfs
// serve`, so that the server need not start a process for each.
func newStandby(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "standby state-directory",
		Short:  "supervise the processes of sandboxes, one after another",
		Hidden: true,
		Args:   exactly("state directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var begun ahead.Container
			err := standby.Serve(cmd.Context(), func(job standby.Job) error {
				e, err := a.openAsChild(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				// After a signal the process ends: it could not supervise another sandbox.
				return errors.Join(e.Supervise.SuperviseJob(cmd.Context(), job, &begun), cmd.Context().Err())
			}, func() { begun.Begin(cmd.Context()) })
			return errors.Join(err, begun.Close())
		},
	}
}

// newSweeper returns the hidden command of the background process that frees the disk space of removed
// sandboxes.
func newSweeper(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "sweeper state-directory",
		Short:  "free the space of removed sandboxes",
		Hidden: true,
		Args:   exactly("state directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !engine.IsState(args[0]) {
				return nil // it was removed meanwhile, and must not come back
			}
			e, err := a.openAsChild(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = e.Collect(context.WithoutCancel(cmd.Context()))
			return err
		},
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/internal/timer"
	"github.com/snapfs/snapfs/internal/units"
)

func newTimer(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "timer",
		Short: "manage the systemd timer that runs snapfs gc",
		Long: `Each snapfs command ends sandboxes whose time is over. On machines where no command
runs for long, a systemd timer runs snapfs gc: root's for the machine's sandboxes in
/etc/systemd/system, a user's for that user's own in ~/.config/systemd/user.`,
		Example: "  snapfs timer install --every 30m\n  snapfs timer status\n  snapfs timer remove",
	}
	return group(cmd, timerInstall(a), timerStatus(a), timerRemove(a))
}

func timerInstall(a *app) *cobra.Command {
	every := "1h"
	cmd := &cobra.Command{
		Use:   "install",
		Short: "install, enable and start the timer",
		Long: `Writes a systemd timer and its service, enables the timer and starts it. A user's timer
runs while the user is logged in, unless lingering is enabled (loginctl enable-linger),
which snapfs does not do.`,
		Example: "  snapfs timer install --every 30m",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := units.ParseDuration(every)
			if err == nil && d < time.Minute {
				err = errors.New("the least is 1m")
			}
			if err != nil {
				return usageError(fmt.Errorf("--every: %w", err))
			}
			m, err := timer.For(os.Geteuid() == 0)
			if err != nil {
				return err
			}
			args, err := a.collecting()
			if err != nil {
				return err
			}
			if err := m.Install(cmd.Context(), args, d); err != nil {
				return err
			}
			return a.printTimer(cmd.Context(), m)
		},
	}
	cmd.Flags().StringVar(&every, "every", every, "run at this interval, a `duration`")
	return cmd
}

// collecting returns the command line of `snapfs gc` for this state directory, for the systemd timer to run.
func (a *app) collecting() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	state := a.state
	if state == "" {
		state, err = engine.StateDir()
	}
	if err == nil {
		state, err = absolute(state)
	}
	return []string{self, "--state", state, "gc"}, err
}

func timerStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "show whether the timer is installed and running", Args: exactly(),
		Example: "  snapfs timer status --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := timer.For(os.Geteuid() == 0)
			if err != nil {
				return err
			}
			return a.printTimer(cmd.Context(), m)
		},
	}
}

func (a *app) printTimer(ctx context.Context, m timer.Manager) error {
	s, err := m.Status(ctx)
	if err != nil {
		return err
	}
	return a.ui.result(s, func(w io.Writer) error {
		if !s.Installed {
			_, err := fmt.Fprintln(w, "not installed")
			return err
		}
		_, err := fmt.Fprintf(w, "%s in %s: %s, %s\n", timer.Timer, tame(s.Dir), tame(s.Enabled), tame(s.Active))
		return err
	})
}

// A timerRemoved is the JSON form of the result of `snapfs timer remove`: whether the timer was installed.
type timerRemoved struct {
	Removed bool `json:"removed"`
}

func timerRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "remove", Short: "stop and remove the timer", Args: exactly(),
		Long:    "Stops the timer and removes the units that snapfs timer install wrote, and no others.",
		Example: "  snapfs timer remove",
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := timer.For(os.Geteuid() == 0)
			if err != nil {
				return err
			}
			there, err := m.Remove(cmd.Context())
			if err != nil {
				return err
			}
			return a.ui.result(timerRemoved{there}, func(io.Writer) error { return nil })
		},
	}
}

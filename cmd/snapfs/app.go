package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/local"
	"github.com/spf13/cobra"
)

// An app is the state that all commands of the program share, such as the state directory and the output.
type app struct {
	ui    *ui
	state string
	// signals receives the signals that [catchSignals] catches.
	signals chan os.Signal
	// first is the first argument of the command line that is not a flag, or "".
	first string
	// onlyReads is set for a command that only reads, and so does not wait for background
	// removals.
	onlyReads bool
	// status is the exit status after success. A command that runs another command sets it to
	// the other's status.
	status int
	// limited is set if that other command reached a limit.
	limited bool
}

// engine opens the engine of the state directory, and prints a notice for each repair that opening made.
func (a *app) engine(ctx context.Context) (*engine.Engine, error) {
	if err := local.CheckOutside(); err != nil {
		return nil, err
	}
	state, err := a.openState()
	if err != nil {
		return nil, err
	}
	return a.open(ctx, state)
}

// openState returns the path of the state directory: that of --state, or the usual one.
func (a *app) openState() (string, error) {
	if a.state != "" {
		return a.state, nil
	}
	return engine.StateDir()
}

// withEngine returns a function for cobra that opens the engine and calls do, the body of a command.
func (a *app) withEngine(do func(ctx context.Context, e *engine.Engine, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		e, err := a.engine(cmd.Context())
		if err != nil {
			return err
		}
		return do(cmd.Context(), e, args)
	}
}

func (a *app) open(ctx context.Context, state string) (*engine.Engine, error) {
	return local.Open(ctx, local.Options{State: state, Program: self(), Later: a.onlyReads, Notice: a.ui.notice})
}

// openAsChild opens the engine in a process that another process of snapfs has started for the same state directory.
func (a *app) openAsChild(ctx context.Context, state string) (*engine.Engine, error) {
	return local.Open(ctx, local.Options{State: state, Program: self(), Later: a.onlyReads, Notice: a.ui.notice, Child: true})
}

// workdir returns the current directory by the shell's name for it ($PWD), symbolic links
// included.
func workdir() (string, error) {
	dir, err := os.Getwd()
	if err == nil {
		return dir, nil
	}
	kind := errs.KindOf(err)
	if errors.Is(kind, errs.ErrNotFound) {
		err = errors.New("it was deleted")
	}
	return "", &errs.Error{Op: "finding the current directory", Kind: kind, Err: err, Hints: []string{"cd"}}
}

// workspacesHere returns the directories that can be the workspace of a sandbox made in the current
// directory.
func workspacesHere() ([]string, error) {
	dir, err := workdir()
	if err != nil {
		return nil, err
	}
	return hostfs.WorkspacesAt(dir)
}

// absolute returns a path from the command line as an absolute path; a relative one begins at the current
// directory.
func absolute(path string) (string, error) {
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	dir, err := workdir()
	return filepath.Join(dir, path), err
}

// missing prints the protections of the started sandbox that this host lacks and --best-effort has left out.
func (a *app) missing(l engine.Level) {
	if len(l.Missing) > 0 {
		a.ui.notice("running without " + strings.Join(l.Missing, ", "))
	}
}

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/spf13/cobra"
)

func newExec(a *app) *cobra.Command {
	var dir string
	var pass []string
	var room admissionFlags
	var prove, detach bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "exec [flags] sandbox -- command [argument...]",
		Short: "run a command in an existing sandbox",
		Long: `Runs a command in a sandbox. Commands in one sandbox see each other's processes and
files. Its supervisor starts with the first command and ends with the last. snapfs
exits with the command's status. At the sandbox's ttl the command ends, with status
124, and what else runs in the sandbox is paused.

With --detach the command goes on without snapfs and a terminal: snapfs prints its number
at once, and "snapfs logs" its output and status.`,
		Example:           "  snapfs exec fix -- go test ./...\n  snapfs exec -d fix -- ./server",
		Annotations:       map[string]string{passesStatus: ""},
		ValidArgsFunction: a.completeThenFiles,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) == 2 && args[1] == "--" {
				return usageError(errors.New("exec requires a sandbox and a command"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == "--" {
				args = append(args[:1], args[2:]...)
			}
			if err := a.askFromNow(cmd.Context(), args[0], wait); err != nil {
				return err
			}
			if detach {
				return a.detach(cmd.Context(), args[0], dir, pass, args[1:], prove, room)
			}
			return a.exec(cmd.Context(), args[0], dir, pass, args[1:], prove, room)
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "start the command and return at once")
	cmd.Flags().StringVarP(&dir, "dir", "C", "", "start in this `directory` (default the current one if inside the workspace, else the workspace)")
	addVariables(cmd.Flags(), &pass)
	addAsk(cmd.Flags(), &wait)
	room.add(cmd.Flags())
	addProveFirst(cmd, &prove)
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// addProveFirst adds the flag --prove, for a self-test before the command, to a command that enters an
// existing sandbox.
func addProveFirst(cmd *cobra.Command, prove *bool) {
	cmd.Flags().BoolVar(prove, "prove", false, "test isolation from inside first")
}

func newShell(a *app) *cobra.Command {
	var dir string
	var room admissionFlags
	var prove bool
	cmd := &cobra.Command{
		Use:               "shell sandbox",
		Short:             "open a shell in an existing sandbox",
		Example:           "  snapfs shell fix",
		Annotations:       map[string]string{passesStatus: ""},
		ValidArgsFunction: a.completeSandbox,
		Args:              exactly("sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			shell := os.Getenv("SHELL")
			if shell == "" {
				shell = "/bin/sh"
			}
			return a.exec(cmd.Context(), args[0], dir, nil, []string{shell}, prove, room)
		},
	}
	cmd.Flags().StringVarP(&dir, "dir", "C", "", "start in this `directory` (default the current one if inside the workspace, else the workspace)")
	room.add(cmd.Flags())
	addProveFirst(cmd, &prove)
	return cmd
}

func (a *app) exec(ctx context.Context, name, dir string, pass, args []string, prove bool, room admissionFlags) error {
	when, err := room.admission(a.ui)
	if err != nil {
		return err
	}
	e, err := a.engine(ctx)
	if err != nil {
		return err
	}
	dir, env, err := startIn(e, name, dir, pass)
	if err != nil {
		return err
	}
	tty := a.terminal(true)
	command, err := tty.command(engine.Command{Args: args, Env: env, Dir: dir})
	if err != nil {
		return err
	}
	begin, done := starting(ctx)
	defer done()
	p, err := e.Supervise.ExecWith(begin, name, command, supervise.ExecOptions{Admission: when, Prove: prove, EndAtTTL: true})
	if err != nil {
		return err
	}
	st, err := tty.follow(ctx, p, p.Wait)
	a.status = st.ExitCode()
	if err == nil {
		a.printLimitHitIn(e, name, p.Hit(), st)
		if p.Hit() == nil {
			a.explainHidden(ctx, e, name, mentionsOf(command, tty), st)
		}
	}
	if err = errors.Join(err, p.Close()); err == nil && tty.ownPTY {
		a.behind(ctx, e, name)
	}
	return err
}

// startIn returns the directory and the environment for a command in the sandbox called name. The directory
// is dir, or the current directory if it lies in the sandbox's workspace, or the workspace. The environment
// has the variables that the sandbox passes, and those that pass names.
func startIn(e *engine.Engine, name, dir string, pass []string) (start string, env []string, err error) {
	if err := checkVariables(pass); err != nil {
		return "", nil, err
	}
	rec, err := e.Catalog().Get(name)
	if err != nil {
		return "", nil, err
	}
	env = hostfs.Environ(os.Environ(), slices.Concat(rec.Policy.Env, pass))
	if dir == "" {
		return startingPoint(rec.Workspace), env, nil
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(rec.Workspace, dir)
	}
	return filepath.Clean(dir), env, nil
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/spf13/cobra"
)

// A detachedDocument is the JSON form of a command that runs in the background of a sandbox, for `snapfs
// logs`.
type detachedDocument struct {
	supervise.Detached
	Output *string `json:"output,omitempty"`
}

// A startedDocument is the JSON form of `snapfs exec --detach`: it names the started background command.
type startedDocument struct {
	Sandbox string `json:"sandbox"`
	ID      int    `json:"id"`
}

// detach starts the command args in the background of the sandbox called name, for `snapfs exec --detach`,
// and prints its number. dir and pass are the working directory and the names of environment variables to
// pass (see startIn). With prove a self-test runs first; room says what to do without capacity.
func (a *app) detach(ctx context.Context, name, dir string, pass, args []string, prove bool, room admissionFlags) error {
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
	command := engine.Command{Args: args, Env: env, Dir: dir}
	id, err := e.Supervise.Detach(ctx, name, command, supervise.ExecOptions{Admission: when, Prove: prove})
	if err != nil {
		return err
	}
	return a.ui.say(startedDocument{name, id}, strconv.Itoa(id))
}

func newLogs(a *app) *cobra.Command {
	var follow, list bool
	cmd := &cobra.Command{
		Use:   "logs sandbox [number]",
		Short: "print the output of a detached command",
		Long: `Prints the stored output of a command that "snapfs exec --detach" started, the last one
without a number, and how it ended. Of each command the last 8 to 16 MiB are stored, and
of each sandbox the last 20 commands.`,
		Example:           "  snapfs logs fix\n  snapfs logs -f fix\n  snapfs logs --list fix",
		ValidArgsFunction: a.completeSandbox,
		Args:              between("sandbox", "number"),
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			all, err := e.Supervise.DetachedOf(args[0])
			if err != nil {
				return err
			}
			if list {
				if len(args) > 1 || follow {
					return usageError(errors.New("--list excludes a number and --follow"))
				}
				return a.ui.result(all, func(w io.Writer) error { return printDetached(w, all) })
			}
			d, err := chooseDetached(all, args)
			if err != nil {
				return err
			}
			return a.printLog(ctx, e, args[0], d, follow)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the command has ended")
	cmd.Flags().BoolVarP(&list, "list", "l", false, "list the commands instead")
	return cmd
}

// chooseDetached returns the background command with the number args[1], or without that argument the last
// one.
func chooseDetached(all []supervise.Detached, args []string) (d supervise.Detached, err error) {
	id := -1
	if len(args) > 1 {
		if id, err = strconv.Atoi(args[1]); err != nil {
			return d, usageError(fmt.Errorf("%q is no number of a command", args[1]))
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		if id == -1 || all[i].ID == id {
			return all[i], nil
		}
	}
	text := "no command was started with exec --detach"
	if id != -1 {
		text = "no detached command has the number " + args[1]
	}
	return d, &errs.Error{Op: "reading the logs", Path: args[0], Kind: errs.ErrNotFound, Err: errors.New(text), Hints: []string{"snapfs logs --list " + errs.Quoted(args[0])}}
}

func (a *app) printLog(ctx context.Context, e *engine.Engine, name string, d supervise.Detached, follow bool) error {
	var output bytes.Buffer
	var w io.Writer = a.ui.out
	if a.ui.json {
		w = &output
	}
	if err := e.Supervise.CopyOutput(ctx, w, name, d.ID, follow); err != nil {
		return err
	}
	all, err := e.Supervise.DetachedOf(name)
	if err != nil {
		return err
	}
	for _, now := range all {
		if now.ID == d.ID {
			d = now
		}
	}
	text := output.String()
	return a.ui.result(detachedDocument{d, &text}, func(io.Writer) error {
		a.ui.notice(strconv.Itoa(d.ID) + ": " + d.Describe())
		return nil
	})
}

func printDetached(w io.Writer, all []supervise.Detached) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, d := range all {
		fmt.Fprintf(t, "%d\t%s ago\t%s\t%s\n", d.ID, age(time.Since(d.Began)), d.Describe(), tame(strings.Join(d.Args, " ")))
	}
	return t.Flush()
}

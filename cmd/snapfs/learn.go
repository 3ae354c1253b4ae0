package main

import (
	"fmt"
	"io"
	"os"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/profile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/learn"
	"github.com/spf13/cobra"
)

func newLearn(a *app) *cobra.Command {
	var flags requestFlags
	var file string
	cmd := &cobra.Command{
		Use:   "learn [flags] -- command [argument...]",
		Short: "run a command and write the smallest profile under which it passes",
		Long: `Runs a command in a new sandbox in which it may reach, write and execute everything but
secrets, and prints the profile of what it used: the destinations, the paths that it
changed, and the programs that it executed. What it changed is discarded.

A destination is known when it was refused: so the command runs again, in a new sandbox,
until no other one is refused, at most ten times. Read the profile before you use it: it
allows all that the command reached. A file that the command opened for writing and did
not change is not in it. The command's output goes to standard error, its input is empty,
and its status is that of snapfs.`,
		Example: `  snapfs learn -o build.toml -- make
  snapfs run --profile build.toml -- make
  snapfs profile diff build.toml go-build`,
		Annotations: map[string]string{passesStatus: ""},
		Args:        atLeast("the command"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.profile = profile.None
			req, dir, err := flags.request(cmd.Context(), a)
			if err != nil {
				return err
			}
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			l, err := learn.Of(cmd.Context(), e, req, engine.Command{
				Args: args, Env: hostfs.Environ(os.Environ(), req.Policy.Env), Dir: dir, Stdout: a.ui.err, Stderr: a.ui.err,
			})
			if err != nil {
				return err
			}
			return a.printLearned(l, file)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	f := cmd.Flags()
	flags.given = f
	f.StringVarP(&flags.workspace, "workspace", "C", "", "clone this `directory` as the workspace (default the git work tree around the current directory, or the current directory)")
	f.StringVar(&flags.backend, "backend", "", "use this `backend` (default $SNAPFS_BACKEND, or the best that works)")
	addVariables(f, &flags.policy.Env)
	f.StringVarP(&file, "output", "o", "", "write the profile to this `file`")
	f.SetInterspersed(false)
	flags.policy.Network = "none"
	return cmd
}

// printLearned prints the profile that `snapfs learn` made from the behaviour of a command, to file or
// without one to standard output, and notices about behaviour that the profile does not cover.
func (a *app) printLearned(l *learn.Learned, file string) error {
	a.status = l.Status
	if err := l.Check(); err != nil {
		return err
	}
	for _, t := range l.Looked {
		a.ui.notice("looked for a hidden file: " + pathlist.Printable(t.Path) + " (snapfs run --expose shows one)")
	}
	for _, text := range l.NotLearned {
		a.ui.notice("not learned: " + tame(text))
	}
	if l.Status != 0 {
		a.ui.notice(fmt.Sprintf("the command failed with status %d: the profile is of what it did until then", l.Status))
	}
	if file == "" || a.ui.json {
		return a.ui.result(l, func(w io.Writer) error {
			_, err := io.WriteString(w, l.Profile)
			return err
		})
	}
	if err := os.WriteFile(file, []byte(l.Profile), 0o644); err != nil {
		return errs.With("writing", file, err)
	}
	a.ui.notice("learned in " + count(l.Passes, "run") + ": " + pathlist.Printable(file))
	a.ui.hint("snapfs run --profile " + errs.Quoted(file) + " …")
	return nil
}

func newProfileDiff(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "diff used profile",
		Short: "compare what a command used with what a profile allows",
		Long: `Compares a profile of what a command used, as snapfs learn writes it, with another one:
+ is what was used and is not allowed, - what is allowed and was not used. It compares
destinations, programs and writable paths, and exits with 1 if something that was used is
not allowed.`,
		Example: "  snapfs profile diff build.toml go-build",
		Args:    exactly("used", "profile"),
		RunE: func(_ *cobra.Command, args []string) error {
			var both [2]*policy.Profile
			for i, arg := range args {
				name, err := profileNamed(arg)
				if err != nil {
					return err
				}
				if both[i], err = policy.Read(name, policy.Named); err != nil {
					return err
				}
			}
			list := learn.Diff(&both[0].Sandbox, &both[1].Sandbox)
			for _, d := range list {
				if d.Used {
					a.status = 1
				}
			}
			return a.ui.result(list, func(w io.Writer) error {
				for _, d := range list {
					sign := "-"
					if d.Used {
						sign = "+"
					}
					if _, err := fmt.Fprintf(w, "%s %s %s\n", sign, d.Setting, pathlist.Printable(d.Value)); err != nil {
						return err
					}
				}
				return nil
			})
		},
		ValidArgsFunction: completeProfile,
	}
}

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
		Short: "run a command and print a profile that allows what it used",
		Long: `Runs a command in a new sandbox and prints a profile with the things that it used: the
network destinations, the paths that it changed and the programs that it executed. Secrets
stay hidden. The sandbox and its changes are removed.

The first run may reach no destination. The command then runs again, in a new sandbox, with
those that were refused, until no other is refused, at most ten times: its requests over the
network are real, in each run. Read the profile before you use it: it allows every
destination that the command tried, and no file that the command opened for writing but did
not change. This host and its own network stay refused, and are listed. The command gets no input, its output goes to standard error, and snapfs exits
with its status.`,
		Example: `  snapfs learn -o build.toml -- make
  snapfs run --profile build.toml -- make
  snapfs profile diff build.toml go-build`,
		Annotations: map[string]string{passesStatus: ""},
		Args:        atLeast("command"),
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
			l, err := learn.Run(cmd.Context(), e, req, engine.Command{
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
	a.printAttempts(l.Looked)
	if len(l.Looked) > 0 {
		a.ui.hint("snapfs run --expose " + errs.Quoted(l.Looked[0].Path) + " …")
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
	path, err := absolute(file) // a bare name would be that of a built-in profile
	if err != nil {
		return err
	}
	a.ui.hint("snapfs run --profile " + errs.Quoted(path) + " …")
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
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := workdir()
			if err != nil {
				return err
			}
			workspace, err := hostfs.Workspace(dir)
			if err != nil {
				return err
			}
			var both [2]*policy.Profile
			for i, arg := range args {
				name, err := profileNamed(arg)
				if err != nil {
					return err
				}
				if both[i], err = policy.Read(name, policy.Named); err != nil {
					return err
				}
				// Registries are compared as the servers that they stand for on this host.
				if both[i].Sandbox.Net, err = both[i].Sandbox.Network(cmd.Context(), workspace); err != nil {
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

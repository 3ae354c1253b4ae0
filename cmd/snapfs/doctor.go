package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/probe"
	"github.com/snapfs/snapfs/workflow/transfer"
	"github.com/spf13/cobra"
)

func newDoctor(a *app) *cobra.Command {
	var req requestFlags
	var proof, repair bool
	var only []string
	var record string
	cmd := &cobra.Command{
		Use:   "doctor [flags] [sandbox | profile]",
		Short: "check this host and suggest fixes",
		Long: `Tests each feature of this host that snapfs can use, as the current user; names the
backend for the workspace and the reasons; and starts a sandbox of the workspace. The
exit status is 0 if the sandbox started, else 7.

--prove tests the isolation of such a sandbox from inside instead: each limit, at its
value or a smaller one; the network, unless it is the host's; hidden paths; the host's
processes and kernel. Each line shows the attempt, its outcome and whether the
isolation held, or that it could not be tried. --only selects self-tests by name. With a profile, as an argument or
by --profile, snapfs tests the network and the limits of that profile; a limit that
would take too long to reach is tested at a smaller value, and the line says so. The
exit status is 0 if all held, else 7.

With --evidence, --prove checks five points and signs the result for "snapfs ready": a
sandbox of the profile starts; host files, secrets and other sandboxes are out of reach; so
is each destination that the profile does not allow; each limit holds; and the record of
that sandbox has a run that succeeded and one that was refused. It writes this record to
FILE, for "snapfs evidence verify".

With a sandbox's name, doctor checks its records on disk and reports damaged or missing
parts; where the backend supports it (fusecow), it also checks the stored data. Nothing
may run in the sandbox. --repair fixes what it can: it restores the sandbox's record from
a copy, and puts damaged files aside until the sandbox is removed. The exit status is 0 if
nothing is damaged or all is repaired, else 8.`,
		Example: "  snapfs doctor\n  snapfs doctor -C ~/project --json\n  snapfs doctor --prove --net allow:git.example.org --memory 1G\n  snapfs doctor fix --repair\n  snapfs doctor --prove --evidence host.evidence --profile builds.toml",
		Args:    atMost("sandbox or profile"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if proof {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.completeSandbox(cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			proof = proof || len(only) > 0
			if record != "" && (!proof || len(only) > 0 || repair) {
				return usageError(errors.New("--evidence requires --prove, without --only and --repair"))
			}
			if !proof && len(args) > 0 || repair {
				return a.check(cmd, args, repair)
			}
			if len(args) > 0 {
				if req.profile != "" || args[0] == "" {
					return usageError(errors.New("name the profile once, as an argument or by --profile"))
				}
				req.profile = args[0]
			}
			r, dir, err := req.request(cmd.Context(), a)
			if err != nil {
				return err
			}
			if record != "" {
				return a.checklist(cmd.Context(), r, record)
			}
			if proof {
				return a.prove(cmd.Context(), r, only)
			}
			d, err := a.examine(cmd.Context(), r, dir)
			if err != nil {
				return err
			}
			if !d.Works {
				a.status = exitCannot
			}
			return a.ui.result(d, func(w io.Writer) error { return printExamination(w, d) })
		},
	}
	req.add(cmd)
	cmd.Flags().BoolVar(&proof, "prove", false, "test isolation and limits from inside a sandbox")
	cmd.Flags().StringVar(&record, "evidence", "", "with --prove, sign the result for snapfs ready and write its record to this `file`")
	cmd.Flags().BoolVar(&repair, "repair", false, "repair the sandbox's records")
	cmd.Flags().StringSliceVar(&only, "only", nil, "with --prove, run only the self-tests with these `name`s")
	return cmd
}

// An examination is the result of `snapfs doctor`: the features of this host, and whether a sandbox could be
// started.
type examination struct {
	Powers    []power     `json:"powers"`
	Workspace string      `json:"workspace"`
	Trees     []treeFound `json:"trees"`
	// Works is set if a sandbox of the workspace could be started. Took is the time for
	// starting and removing it.
	Works bool          `json:"works"`
	Took  time.Duration `json:"took_ns"`
	Level string        `json:"level,omitempty"`
	Why   string        `json:"why,omitempty"`
	Hints []string      `json:"hints,omitempty"`
	// Unfinished lists interrupted promotions, of any workspace, that wait for an unmounted
	// disk.
	Unfinished []reconcile.Unfinished `json:"unfinished,omitempty"`
	// Strange lists paths in the state directory that snapfs did not create.
	Strange []string `json:"strange,omitempty"`
}

type power struct {
	Name   string   `json:"name"`
	Answer string   `json:"answer"`
	For    string   `json:"for"`
	Since  string   `json:"since,omitempty"`
	Why    string   `json:"why,omitempty"`
	Fix    []string `json:"fix,omitempty"`
}

type treeFound struct {
	Path    string `json:"path"`
	Backend string `json:"backend"`
	Base    string `json:"base"`
	Reason  string `json:"reason"`
	// Hints are commands that remove the cause given in Reason.
	Hints []string `json:"hints,omitempty"`
}

func (a *app) examine(ctx context.Context, req hostfs.Request, dir string) (*examination, error) {
	e, err := a.engine(ctx)
	if err != nil {
		return nil, err
	}
	d := &examination{Workspace: req.Workspace, Trees: []treeFound{}, Unfinished: e.Reconcile.Unfinished()}
	if d.Strange, err = transfer.New(e).Unknown(); err != nil {
		return nil, err
	}
	for _, p := range probe.All(e.StateDir()) {
		r := p.Run(ctx)
		d.Powers = append(d.Powers, power{p.Name, r.Answer.String(), p.What, p.Since, r.Why, r.Fix})
	}
	trees, err := e.Host.Backends(ctx, req)
	for _, t := range trees {
		d.Trees = append(d.Trees, treeFound{t.Path, t.Driver, frozenOrLive(t.Frozen), t.Reason, t.Hints})
	}
	if err == nil {
		err = d.try(ctx, e, req, dir)
	}
	if err != nil {
		d.Why, d.Hints = err.Error(), errs.HintsOf(err)
	}
	return d, ctx.Err()
}

// try runs /bin/true in a new sandbox, which req describes, with dir as the working directory, removes the
// sandbox, and notes in d whether and how fast that worked.
func (d *examination) try(ctx context.Context, e *engine.Engine, req hostfs.Request, dir string) error {
	start := time.Now()
	s, err := e.Run(ctx, req, engine.Command{Args: []string{"/bin/true"}, Dir: dir})
	if err != nil {
		return err
	}
	d.Level = s.Supervisor.Container.Level().String()
	st, err := s.Wait(ctx)
	err = errors.Join(err, s.Discard(context.WithoutCancel(ctx)))
	d.Took = time.Since(start)
	if err == nil && st.ExitCode() != 0 {
		err = fmt.Errorf("/bin/true in a sandbox exited with status %d", st.ExitCode())
	}
	d.Works = err == nil
	return err
}

func printExamination(w io.Writer, d *examination) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, p := range d.Powers {
		fmt.Fprintf(t, "%s\t%s\t%s\n", p.Answer, p.Name, p.For)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range d.Powers {
		if p.Answer == probe.Yes.String() {
			continue
		}
		fmt.Fprintf(w, "\n%s: %s: %s\n", p.Name, p.Answer, tame(p.Why))
		for _, f := range p.Fix {
			fmt.Fprintln(w, "hint: "+tame(f))
		}
	}
	for _, u := range d.Unfinished {
		fmt.Fprintf(w, "\n%s\nhint: findmnt -T %s\nhint: snapfs undo --forget %s (gives the promotion up; old versions of files stay)\n", tame(u.String()), tame(u.Target), u.ID)
	}
	for _, path := range d.Strange {
		fmt.Fprintf(w, "\n%s was not created by snapfs, which leaves it alone\n", tame(path))
	}
	fmt.Fprintf(w, "\n%s can use these backends:\n", tame(d.Workspace))
	t = tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, f := range d.Trees {
		fmt.Fprintf(t, "%s\t%s\tbase %s\t%s\n", tame(f.Path), f.Backend, f.Base, tame(f.Reason))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, f := range d.Trees {
		for _, h := range f.Hints {
			fmt.Fprintln(w, "hint: "+tame(h))
		}
	}
	if d.Works {
		fmt.Fprintf(w, "\na sandbox of it started, ran and was removed in %v\n%s\n", d.Took.Round(10*time.Microsecond), d.Level)
		return nil
	}
	fmt.Fprintf(w, "\nno sandbox of it started: %s\n", tame(d.Why))
	for _, h := range d.Hints {
		fmt.Fprintln(w, "hint: "+tame(h))
	}
	return nil
}

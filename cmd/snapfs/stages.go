package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/workflow/pipeline"
	"github.com/spf13/cobra"
)

func newStages(a *app) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "stages",
		Short: "check a profile and explain its stages",
		Long: `Reads the profile of the workspace around the current directory, snapfs.toml, reports
every mistake with its line, column and fix, and explains each stage of "snapfs promote
--to". It runs nothing.`,
		Example: "  snapfs stages\n  snapfs stages --profile examples/pipeline/snapfs.toml",
		Args:    atMost(),
		RunE: func(*cobra.Command, []string) error {
			dir, err := workdir()
			if err != nil {
				return err
			}
			if path != "" {
				if path, err = absolute(path); err != nil {
					return err
				}
			}
			workspace, err := hostfs.Workspace(dir)
			if err != nil {
				return err
			}
			p, err := pipeline.Profile(workspace, path)
			if err != nil {
				return err
			}
			return a.ui.result(p, func(w io.Writer) error { return explainProfile(w, p, workspace) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&path, "profile", "", "read this profile `file`")
	return cmd
}

// explainProfile prints a description of each stage of promotion that a profile has: its target and the
// commands it runs. workspace is the directory that a promotion starts from.
func explainProfile(w io.Writer, p *policy.Profile, workspace string) error {
	var b strings.Builder
	source := workspace
	for i, s := range p.Stages {
		does, where := "checks only", workspace+" with the changes applied"
		switch {
		case s.Target != "":
			does, source = "applies the changes to "+s.Target, s.Target
			where = s.Target + " with the changes applied"
		case s.Deploy != nil:
			does, where = "deploys from "+source, source
		}
		fmt.Fprintf(&b, "%d. %s: %s, within %s\n", i+1, s.Name, does, s.Timeout)
		if s.Approval == policy.Ask {
			b.WriteString("   requires approval of its plan\n")
		}
		for _, c := range s.Before {
			fmt.Fprintf(&b, "   before, in a sandbox of %s: %s\n", where, explainCommand(c))
		}
		for _, d := range []struct {
			what string
			c    *policy.Command
		}{{"deploy", s.Deploy}, {"rollback", s.Rollback}} {
			if d.c != nil {
				fmt.Fprintf(&b, "   %s, on this machine, in %s: %s\n", d.what, source, explainCommand(*d.c))
			}
		}
		for _, c := range s.After {
			fmt.Fprintf(&b, "   after, on this machine, in %s: %s\n", source, explainCommand(c))
		}
	}
	_, err := io.WriteString(w, tame(b.String()))
	return err
}

func explainCommand(c policy.Command) string {
	if c.Timeout > 0 {
		return c.Name + " (within " + c.Timeout.String() + ")"
	}
	return c.Name
}

// stageFlags hold the flags of `snapfs promote` about a promotion through the stages of a profile, such as
// --to, which names the last stage.
type stageFlags struct {
	to, profile             string
	resume, cancel, approve bool
}

func (f *stageFlags) add(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.to, "to", "", "promote through the profile's stages, up to this `stage`")
	cmd.Flags().StringVar(&f.profile, "profile", "", "with --to, read the stages from this `file` (default the real workspace's snapfs.toml)")
	cmd.Flags().BoolVar(&f.resume, "continue", false, "resume an interrupted or waiting promotion through stages")
	cmd.Flags().BoolVar(&f.approve, "approve", false, "with --continue, approve the waiting stage")
	cmd.Flags().BoolVar(&f.cancel, "cancel", false, "cancel a promotion through stages and undo its current stage")
	cmd.RegisterFlagCompletionFunc("to", a.completeStage) //nolint:errcheck // the flag is there
}

// completeStage completes an argument in the shell to the name of a stage of promotion, from the profile of
// the sandbox args[0].
func (a *app) completeStage(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	path, err := cmd.Flags().GetString("profile")
	if path != "" && err == nil {
		path, err = absolute(path)
	}
	for _, r := range a.records() {
		if err != nil || len(args) == 0 || r.Name != args[0] {
			continue
		}
		if p, err := pipeline.Profile(r.Workspace, path); err == nil {
			return p.Names(), noFiles
		}
	}
	return nil, noFiles
}

// args returns a usage error if the arguments and flags of `snapfs promote` contradict each other.
func (f *stageFlags) args(cmd *cobra.Command, args []string) error {
	ways := 0
	for _, flag := range []string{"to", "continue", "cancel"} {
		if cmd.Flags().Changed(flag) {
			ways++
		}
	}
	switch {
	case ways > 1:
		return usageError(errors.New("--to, --continue and --cancel exclude one another"))
	case f.approve && !f.resume:
		return usageError(errors.New("--approve requires --continue"))
	case cmd.Flags().Changed("profile") && (f.to == "" || f.profile == ""):
		return usageError(errors.New("--profile requires a file, and --to"))
	case cmd.Flags().Changed("to") && f.to == "":
		return usageError(errors.New("--to is empty"))
	case f.resume || f.cancel:
		return atMost("promotion")(cmd, args)
	}
	return exactly("sandbox")(cmd, args)
}

// promoteStages promotes through the stages of a profile: it runs `snapfs promote` with --to, --continue or
// --cancel.
func (a *app) promoteStages(ctx context.Context, e *engine.Engine, args []string, f stageFlags, o reconcile.PromoteOptions) error {
	w := pipeline.StageWatcher{Tell: func(stage, what string) { a.ui.notice(stage + ": " + what) }}
	if a.ui.interactive() {
		w.Ask, w.Trust = a.approves, a.trusts
	}
	name, err := optionalName(args, 0)
	if err != nil {
		return err
	}
	var p *stages.Pipeline
	switch {
	case f.resume:
		p, err = pipeline.New(e).ContinueStages(ctx, name, pipeline.ContinueOptions{Approve: f.approve, StageWatcher: w})
	case f.cancel:
		p, err = pipeline.New(e).CancelStages(ctx, name, w)
	default:
		if o.DryRun || o.Plan != "" || o.Tool != "" || o.Target != "" {
			return usageError(errors.New("--dry-run, --plan, --tool and --target exclude --to: each stage has its own plan and target"))
		}
		profile, perr := a.profileOf(e, name, f.profile)
		if perr != nil {
			return perr
		}
		p, err = pipeline.New(e).PromoteStages(ctx, name, pipeline.StageOptions{
			PipelineOptions: stages.PipelineOptions{Only: o.Only, Allow: o.Allow, Mine: o.Mine, Theirs: o.Theirs},
			Profile:         profile, To: f.to, StageWatcher: w,
		})
	}
	var stopped *pipeline.StageError
	if errors.As(err, &stopped) && stopped.Tail != "" {
		for line := range strings.Lines(stopped.Tail) {
			a.ui.notice("| " + strings.TrimRight(line, "\n"))
		}
		a.ui.notice("full output: " + stopped.Log)
	}
	if err != nil {
		return err
	}
	return a.ui.result(p, func(io.Writer) error {
		a.ui.wentThrough(p)
		return nil
	})
}

func (a *app) profileOf(e *engine.Engine, name, path string) (*policy.Profile, error) {
	if path != "" {
		var err error
		if path, err = absolute(path); err != nil {
			return nil, err
		}
	}
	return pipeline.New(e).ProfileOf(name, path)
}

// approves prints the plan of a stage, or the deployment command that it would run, and reports whether a
// person approves it.
func (a *app) approves(_ *stages.Pipeline, s *stages.StageRun, plan *reconcile.Plan) bool {
	if plan != nil {
		if err := printPlan(a.ui.err, plan, 0); err != nil {
			return false
		}
	} else {
		a.ui.notice(s.Name + " would run: " + s.Deploy.Name)
	}
	return a.ui.ask("approve stage "+s.Name+"? [y/n]",
		answer{"yes", "start the stage"},
		answer{"no", "let it wait; snapfs promote --continue --approve resumes"}) == "yes"
}

// wentThrough prints the result of a promotion through stages: that it was cancelled, or each finished stage
// with the command that undoes it.
func (u *ui) wentThrough(p *stages.Pipeline) {
	if p.State == stages.PipelineCancelled {
		u.notice("cancelled the promotion of " + p.Sandbox + " to " + p.To)
		return
	}
	for _, s := range p.Stages {
		text := s.Name + ": done"
		if s.Promotion != "" {
			text += ", " + count(s.Changes, "change") + " (snapfs undo " + s.Promotion + ")"
		}
		u.notice(text)
	}
}

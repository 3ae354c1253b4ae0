package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/errs"
)

// StageOptions say how a sandbox is promoted through stages.
type StageOptions struct {
	stages.PipelineOptions
	// Profile has the stages; all up to To are gone through.
	Profile *policy.Profile
	To      string
	StageWatcher
}

// A StageWatcher is who follows a promotion through stages. All fields may be nil.
type StageWatcher struct {
	// Ask shows a person the plan of a stage that asks for approval, and answers
	// with yes. Where nobody can be asked, the stage waits.
	Ask func(p *stages.Pipeline, s *stages.StageRun, plan *reconcile.Plan) bool
	// Tell is told of each step, in words that complete "STAGE: ".
	Tell func(stage, what string)
}

// PromoteStages promotes a sandbox through the stages of a profile, in order, up
// to one of them. For each: its changes are merged with what the target is now,
// three-way, with the sandbox's base; a person approves, where the stage asks for
// that; the checks before run in a sandbox whose workspace is the target with the
// changes carried out; the changes are carried to the target, wholly or not at
// all; the checks after run on the real machine. A stage that fails is taken back
// alone: those before it stay as they are, those after it are not touched.
//
// Each step is written down before it is done. Killed or interrupted, it goes on
// with [Engine.ContinueStages].
// Errors: a *StageError, with ErrCheck, ErrWaiting or the error of the step in it;
// ErrNotFound (the sandbox, the stage), ErrBusy (it is being promoted), ErrNotSupported.
func (pl *Runner) PromoteStages(ctx context.Context, name string, o StageOptions) (*stages.Pipeline, error) {
	p, lock, err := pl.startPipeline(ctx, name, o)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	return pl.follow(ctx, p, o.StageWatcher, false)
}

// ContinueOptions say how a promotion through stages goes on.
type ContinueOptions struct {
	// Approve lets the stage begin that waits, if it still would do what it would
	// have done when it began to wait.
	Approve bool
	StageWatcher
}

// ContinueStages goes on with a promotion through stages that was interrupted, or
// that waits: the one of that id, or of the sandbox of that name, or the only one
// for "". What was done is not done
// again, but for checks that were cut short, and for a deploy that was: that one is
// rolled back first.
// Errors: those of [Engine.PromoteStages]; ErrNotFound (there is none that has not
// ended), ErrBusy (there are several, or another command works on it).
func (pl *Runner) ContinueStages(ctx context.Context, id string, o ContinueOptions) (*stages.Pipeline, error) {
	p, lock, err := pl.resumePipeline(id)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	i, more := p.Current()
	if o.Approve {
		if !more || p.Stages[i].State != stages.StageWaiting {
			return p, stages.Error(p, errs.ErrNotFound, errors.New("no stage waits for approval"), "snapfs promote --continue "+p.ID)
		}
		s := &p.Stages[i]
		s.Approved = &stages.StageApproval{By: whoAmI(), When: time.Now(), Asked: true, Plan: s.Plan}
		if err := pl.engine.Stages.Save(p); err != nil {
			return p, err
		}
	}
	return pl.follow(ctx, p, o.StageWatcher, true)
}

// CancelStages gives a promotion through stages up: the one of that id, or of the
// sandbox of that name, or the only one for "". What its present stage has done is taken back; the stages before it
// stay as they are. Errors: those of [Engine.ContinueStages].
func (pl *Runner) CancelStages(ctx context.Context, id string, w StageWatcher) (*stages.Pipeline, error) {
	p, lock, err := pl.resumePipeline(id)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	r := &pipelineRun{e: pl, p: p, w: w, resumed: true}
	if i, more := p.Current(); more {
		err = r.cancel(ctx, i)
	}
	p.State, p.Ended = stages.PipelineCancelled, time.Now()
	return p, errors.Join(err, pl.engine.Stages.Save(p))
}

// startPipeline writes a pipeline down, with what the sandbox holds.
func (pl *Runner) startPipeline(ctx context.Context, name string, o StageOptions) (*stages.Pipeline, *os.File, error) {
	last, ok := o.Profile.Stage(o.To)
	if !ok {
		err := &errs.Error{Op: "looking for the stage", Path: o.To, Kind: errs.ErrNotFound, Err: errors.New("the profile has none of this name")}
		if names := o.Profile.Names(); len(names) > 0 {
			err.Err = errors.New("the profile has none of this name, but " + strings.Join(names, ", "))
			err.Hints = []string{"snapfs promote " + name + " --to " + names[len(names)-1]}
		}
		return nil, nil, err
	}
	if err := pl.engine.Reconcile.RefuseUnfinished("promoting", name, ""); err != nil {
		return nil, nil, err
	}
	h, err := pl.engine.Supervise.Hold(ctx, name, "promoting")
	if err != nil {
		return nil, nil, err
	}
	defer h.Release()
	for _, only := range o.Only {
		if strings.HasPrefix(only, "/") && !hostfs.Within(only, h.Workspace) {
			return nil, nil, &errs.Error{Op: "promoting", Path: only, Kind: errs.ErrNotSupported, Err: errors.New("it lies outside the workspace, and stages carry the workspace alone")}
		}
	}
	_, thaw, err := pl.engine.Supervise.Freeze(ctx, h)
	if err != nil {
		return nil, nil, err
	}
	defer thaw()
	p := stages.NewPipeline(h.Record, whoAmI())
	if p.Content, err = pl.contentOf(ctx, h.Record, nil); err != nil {
		return nil, nil, err
	}
	p.Profile, p.To, p.Options = o.Profile.Path, o.To, o.PipelineOptions
	p.Options.Allow.Paths = beneathWorkspace(h.Workspace, o.Allow.Paths)
	for _, s := range o.Profile.Stages[:last+1] {
		p.Stages = append(p.Stages, stages.StageRun{Stage: s, State: stages.StagePending})
	}
	lock, err := pl.engine.Stages.Begin(p)
	return p, lock, err
}

// beneathWorkspace makes paths of the workspace relative: they mean the same in
// every target.
func beneathWorkspace(workspace string, paths []string) []string {
	all := make([]string, len(paths))
	for i, p := range paths {
		if all[i] = p; hostfs.Within(p, workspace) {
			all[i] = hostfs.Relative(p, workspace)
		}
	}
	return all
}

// follow works on a pipeline until it has ended, or cannot go on.
func (pl *Runner) follow(ctx context.Context, p *stages.Pipeline, w StageWatcher, resumed bool) (*stages.Pipeline, error) {
	r := &pipelineRun{e: pl, p: p, w: w, resumed: resumed}
	for i, more := p.Current(); more; i, more = p.Current() {
		if err := r.stage(ctx, i); err != nil {
			return p, r.stopped(ctx, i, err)
		}
		r.resumed = false
	}
	p.State, p.Ended = stages.PipelineDone, time.Now()
	return p, pl.engine.Stages.Save(p)
}

// stopped makes an error of a stage one that says so, and what may come next.
func (r *pipelineRun) stopped(ctx context.Context, i int, err error) error {
	p, s := r.p, &r.p.Stages[i]
	again, cancel := "snapfs promote --continue "+p.ID, "snapfs promote --cancel "+p.ID
	stage := &StageError{Pipeline: p.ID, Stage: s.Name, State: s.State, Err: err}
	var failed *commandFailure
	switch {
	case errors.Is(err, ErrWaiting):
		stage.Next = []string{again + " --approve", cancel}
	case s.State == stages.StageStuck:
		if s.Promotion != "" {
			stage.Next = []string{"snapfs undo " + s.Promotion}
		}
	case s.State.Ended():
		stage.Next = errs.HintsOf(err)
	case ctx.Err() != nil:
		stage.Err = &errs.Error{Op: "interrupted while it was " + string(s.State), Kind: errs.ErrInterrupted, Err: ctx.Err()}
		stage.Next = []string{again, cancel}
	default:
		stage.Next = errs.HintsOf(err)
		for _, hint := range []string{again, cancel} {
			if !slices.Contains(stage.Next, hint) {
				stage.Next = append(stage.Next, hint)
			}
		}
	}
	if errors.As(err, &failed) {
		stage.Command, stage.Tail, stage.Log = failed.name, failed.tail, failed.log
	}
	return stage
}

// whoAmI names this user, and who became root by sudo.
func whoAmI() string {
	name := "uid " + strconv.Itoa(os.Geteuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if sudo := os.Getenv("SUDO_USER"); sudo != "" && os.Geteuid() == 0 {
		name += fmt.Sprintf(" (sudo by %s)", sudo)
	}
	return name
}

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

// StageOptions configure a promotion of a sandbox through the stages of a profile, such as test and
// production. [Runner.PromoteStages] takes them.
type StageOptions struct {
	stages.PipelineOptions
	// Profile holds the stages; those up to To are run.
	Profile *policy.Profile
	To      string
	StageWatcher
}

// A StageWatcher holds functions by which the user interface takes part in a promotion through stages. All
// may be nil.
type StageWatcher struct {
	// Ask shows a person the plan of a stage that needs approval, and returns the decision. If
	// Ask is nil, the stage waits.
	Ask func(p *stages.Pipeline, s *stages.StageRun, plan *reconcile.Plan) bool
	// Trust shows a person what a found profile that is not trusted yet would run on the real
	// machine, and returns whether to trust it. If Trust is nil, the promotion is refused.
	Trust func(p *policy.Profile, runs []policy.HostCommand) bool
	// Tell is called at each step, with words that follow "STAGE: ".
	Tell func(stage, what string)
}

// PromoteStages promotes the sandbox called name through the stages of a profile, in order, up to the one
// that o names. Each stage merges the sandbox's changes with its target, waits for approval if needed, runs
// the checks before in a sandbox with the plan applied, carries out the plan, all or nothing, and runs the
// checks after on the host. A stage that fails is undone alone: earlier stages stay, later ones do not run.
//
// Each step is stored before it begins, so [Runner.ContinueStages] can resume after a kill or an
// interruption. Errors: a *StageError that wraps ErrCheck, ErrWaiting or the error of the step; ErrNotFound
// (the sandbox or the stage), ErrBusy (a promotion of it runs), ErrDenied (a found profile that nobody
// trusts), ErrNotSupported.
func (pl *Runner) PromoteStages(ctx context.Context, name string, o StageOptions) (*stages.Pipeline, error) {
	p, lock, err := pl.startPipeline(ctx, name, o)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	return pl.follow(ctx, p, o.StageWatcher, false)
}

// ContinueOptions configure how [Runner.ContinueStages] continues a promotion through stages that was
// interrupted or waits for approval.
type ContinueOptions struct {
	// Approve approves the waiting stage, provided that its plan has not changed since it
	// began to wait.
	Approve bool
	StageWatcher
}

// ContinueStages resumes a promotion through stages that was interrupted or waits. id is that of the
// promotion, the name of its sandbox, or "" for the only one. It does not repeat finished steps; an
// interrupted check runs again, and an interrupted deploy is rolled back first. Errors: those of
// [Runner.PromoteStages]; ErrNotFound (no such unfinished promotion), ErrBusy (several match, or another
// process works on it).
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

// CancelStages ends a promotion through stages, chosen by id as in [Runner.ContinueStages]. It undoes the
// current stage; earlier stages stay. Errors: those of [Runner.ContinueStages].
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

// startPipeline stores a new promotion of the sandbox called name through stages, with digests of the
// sandbox's content. It returns the promotion with the file that holds its lock, which the caller closes.
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
	if err := pl.trusted(o, last); err != nil {
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
			return nil, nil, &errs.Error{Op: "promoting", Path: only, Kind: errs.ErrNotSupported, Err: errors.New("it is outside the workspace, and stages promote the workspace alone")}
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
	for _, s := range o.Profile.Stages[:last+1] {
		p.Stages = append(p.Stages, stages.StageRun{Stage: s, State: stages.StagePending})
	}
	lock, err := pl.engine.Stages.Begin(p)
	return p, lock, err
}

// follow works on the stages of the promotion p, one after another, until the promotion ends or cannot
// continue. resumed is set if an earlier process may have begun the current step.
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

// stopped returns err, the error at which stage i of the promotion stopped, as a StageError, with the
// commands by which the user can continue.
func (r *pipelineRun) stopped(ctx context.Context, i int, err error) error {
	p, s := r.p, &r.p.Stages[i]
	again, cancel := "snapfs promote --continue "+p.ID, "snapfs promote --cancel "+p.ID
	stage := &r.failed
	stage.Stage, stage.State, stage.Err = s.Name, s.State, err
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
	return stage
}

// whoAmI returns the name of this user, to be stored with approvals; for root also that of the user who
// became root by sudo.
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

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/run"
)

// A pipelineRun is a promotion of a sandbox through stages, such as test and production, on which this
// process works. The process holds the promotion's lock.
type pipelineRun struct {
	e *Runner
	p *stages.Pipeline
	w StageWatcher
	// resumed is set if an earlier process may have begun the current step.
	resumed bool
	// began is the start of this attempt at the stage, and left the time that its commands may
	// still take.
	began time.Time
	left  time.Duration
	// failed has the Command, Tail and Log of the first command that failed.
	failed StageError
}

func (r *pipelineRun) report(s *stages.StageRun, what string) {
	if r.w.Tell != nil {
		r.w.Tell(s.Name, what)
	}
}

// enter stores on disk that the stage s of the promotion enters the state next, before the work of that state
// begins, so that a restart knows which work may have been done.
func (r *pipelineRun) enter(ctx context.Context, s *stages.StageRun, next stages.StageState) error {
	if err := fault.Point(ctx, "enter "+string(next)); err != nil {
		return err
	}
	before := *s
	now := time.Now()
	s.Took += policy.Duration(now.Sub(r.began))
	r.began = now
	s.State, s.Step = next, now
	if next.Ended() {
		s.Ended = now
	}
	if next == stages.StageFailed || next == stages.StageStuck || next == stages.StageUndone {
		r.p.State, r.p.Ended = stages.PipelineFailed, now
	}
	if err := r.e.engine.Stages.Save(r.p); err != nil {
		*s = before
		return err
	}
	return nil
}

// stage works on stage i of the promotion (checks, approval, promotion to a target), step by step, until it
// is done. It returns an error if the stage fails or must wait.
func (r *pipelineRun) stage(ctx context.Context, i int) error {
	s := &r.p.Stages[i]
	r.began, r.left = time.Now(), time.Duration(s.Timeout)
	if s.Began.IsZero() {
		s.Began = r.began
	}
	for s.State != stages.StageDone {
		var err error
		switch s.State {
		case stages.StagePending, stages.StageWaiting:
			err = r.admit(ctx, i)
		case stages.StageChecking:
			err = r.checkBefore(ctx, i)
		case stages.StagePromoting:
			err = r.promote(ctx, i)
		case stages.StageDeploying:
			err = r.deploy(ctx, i)
		case stages.StageVerifying:
			err = r.checkAfter(ctx, i)
		case stages.StageUndoing:
			err = r.takeBack(ctx, i, errors.New(s.Why))
		default:
			err = errors.New(s.Why)
		}
		if err != nil {
			return err
		}
		r.resumed = false
	}
	return nil
}

// fail stores that the stage s of the promotion failed because of err, and returns err. The stage has
// promoted nothing. An interruption is no failure: the stage resumes at its last step.
func (r *pipelineRun) fail(ctx context.Context, s *stages.StageRun, err error) error {
	if ctx.Err() != nil || fleeting(err) {
		return err
	}
	s.Why = err.Error()
	return errors.Join(err, r.enter(ctx, s, stages.StageFailed))
}

// fleeting reports whether err, the error of a stage of a promotion, has a temporary cause outside the stage,
// such as a full disk. The stage can then be continued later.
func fleeting(err error) bool {
	return errors.Is(err, errs.ErrNoSpace) || errors.Is(err, errs.ErrBusy)
}

// admit plans the promotion of stage i to its target directory, and asks a person to approve the plan if the
// stage needs that. It returns ErrWaiting if nobody can be asked.
func (r *pipelineRun) admit(ctx context.Context, i int) error {
	s := &r.p.Stages[i]
	if err := r.e.sameContent(ctx, r.p); err != nil {
		return err
	}
	var plan *reconcile.Plan
	if s.HasChanges() {
		var err error
		if plan, err = r.e.planStage(ctx, r.p, i); err != nil {
			return r.fail(ctx, s, err)
		}
		s.Changes = plan.Count()
	}
	fingerprint := ""
	if plan != nil {
		fingerprint = plan.Fingerprint
	}
	waited := s.State == stages.StageWaiting
	if s.Approved != nil && s.Approved.Plan != fingerprint {
		s.Approved = nil
		r.report(s, "what it would do has changed since it was approved")
	}
	s.Plan = fingerprint
	if s.Approved == nil && s.Approval == policy.Ask {
		if r.w.Ask == nil || !r.w.Ask(r.p, s, plan) {
			if ctx.Err() == nil || !waited {
				if err := r.enter(context.WithoutCancel(ctx), s, stages.StageWaiting); err != nil {
					return err
				}
			}
			return ErrWaiting
		}
		s.Approved = &stages.StageApproval{By: whoAmI(), When: time.Now(), Asked: true, Plan: fingerprint}
	}
	if s.Approved == nil {
		s.Approved = &stages.StageApproval{By: r.p.By, When: time.Now(), Plan: fingerprint}
	}
	r.began = time.Now() // waiting for a person does not count
	return r.enter(ctx, s, stages.StageChecking)
}

// planStage returns the plan by which stage i of p would promote the sandbox. It is an error if the plan has
// conflicts or needs approvals.
func (pl *Runner) planStage(ctx context.Context, p *stages.Pipeline, i int) (*reconcile.Plan, error) {
	o := promoteOptions(p, i)
	c, done, err := pl.engine.Reconcile.Begin(ctx, p.Sandbox, o.PlanOptions, o.Answers())
	if err != nil {
		return nil, err
	}
	defer done()
	if err := c.Plan.Refused(o.PlanOptions); err != nil {
		o.Target = ""
		stages := " --to " + p.To + " --profile " + errs.Quoted(p.Profile)
		hint := c.Plan.Approving(o.PlanOptions) + stages
		if len(c.Plan.Conflicts) > 0 {
			hint = "snapfs promote " + p.Sandbox + " --mine PATH --theirs PATH" + stages
		}
		return nil, errs.With("planning", p.Stages[i].Target, err, hint)
	}
	if err := c.AddSteps(ctx); err != nil {
		return nil, err
	}
	return c.Plan, pl.engine.Reconcile.SavePlan(c.Plan)
}

// promote promotes the sandbox to the target directory of stage i. It carries out the same plan that the
// checks of the stage have tested. It does nothing if an earlier process already has promoted it.
func (r *pipelineRun) promote(ctx context.Context, i int) error {
	s := &r.p.Stages[i]
	if r.resumed {
		id, err := r.promotedAs(i)
		if err != nil {
			return err
		}
		if s.Promotion = id; id != "" {
			return r.enter(ctx, s, stages.StageVerifying)
		}
	}
	switch {
	case s.Changes == 1:
		r.report(s, "promoting 1 change to "+pathlist.Printable(s.Target))
	case s.Changes > 0:
		r.report(s, fmt.Sprintf("promoting %d changes to %s", s.Changes, pathlist.Printable(s.Target)))
	default:
		r.report(s, "nothing to promote to "+pathlist.Printable(s.Target))
	}
	o := promoteOptions(r.p, i)
	o.Plan = s.Plan
	done, err := r.e.engine.Reconcile.Promote(ctx, r.p.Sandbox, o)
	if err != nil {
		return r.fail(ctx, s, err)
	}
	s.Promotion = done.ID
	return r.enter(context.WithoutCancel(ctx), s, stages.StageVerifying)
}

// promotedAs returns the id of the promotion to the target of stage i if an earlier process made it and was
// killed before it stored the id; else "".
func (r *pipelineRun) promotedAs(i int) (string, error) {
	all, err := r.e.engine.Reconcile.Promotions()
	if err != nil {
		return "", err
	}
	for _, m := range all {
		if !reconcile.IsApply(m.Group) && m.Sandbox == r.p.Sandbox && m.Path == r.p.Target(i) && !m.When.Before(r.p.Stages[i].Step) && !r.p.Has(m.Group) {
			return m.Group, nil
		}
	}
	return "", nil
}

// takeBack undoes, because of the error why, the changes that stage i of the promotion made in its target
// directory. It continues if ctx ends, because the target must not stay as it is.
func (r *pipelineRun) takeBack(ctx context.Context, i int, why error) error {
	s := &r.p.Stages[i]
	ctx = context.WithoutCancel(ctx)
	r.report(s, "taking it back")
	var err error
	switch {
	case s.Deploy != nil:
		r.left = time.Duration(s.Timeout)
		if err = r.endLeft(s); err == nil {
			err = r.command(ctx, i, "rollback", 1, *s.Rollback)
		}
	case s.Promotion != "":
		_, err = r.e.engine.Reconcile.Undo(ctx, s.Promotion)
		if r.resumed && errors.Is(err, errs.ErrNotFound) {
			err = nil // an earlier process had done that
		}
	}
	if err != nil {
		s.Why = why.Error() + "; and it could not be taken back: " + err.Error()
		// Only the text and the kind of err: callers report the first failure.
		stuck := errs.New("", "", errs.KindOf(err), "it could not be taken back: "+err.Error())
		return errors.Join(why, stuck, r.enter(ctx, s, stages.StageStuck))
	}
	return errors.Join(why, r.enter(ctx, s, stages.StageUndone))
}

// cancel undoes the unfinished stage i of the promotion in its target directory, if the stage may have
// changed it, and stores that it is undone or failed.
func (r *pipelineRun) cancel(ctx context.Context, i int) error {
	s := &r.p.Stages[i]
	r.began = time.Now()
	given := errors.New("it was cancelled by " + whoAmI())
	s.Why = given.Error()
	switch s.State {
	case stages.StagePromoting:
		id, err := r.promotedAs(i)
		if err != nil {
			return err
		}
		s.Promotion = id
	case stages.StageDeploying, stages.StageVerifying, stages.StageUndoing:
	default:
		return r.enter(ctx, s, stages.StageFailed)
	}
	if s.Promotion == "" && s.Deploy == nil {
		return r.enter(ctx, s, stages.StageFailed)
	}
	if err := r.endLeft(s); err != nil {
		return err
	}
	if err := r.enter(ctx, s, stages.StageUndoing); err != nil {
		return err
	}
	err := r.takeBack(ctx, i, given)
	if s.State == stages.StageUndone {
		return nil
	}
	return err
}

// endLeft ends processes on the host that an earlier, killed snapfs process left running for the current step
// of the stage s. It leaves processes that an earlier command of the stage started on purpose.
func (r *pipelineRun) endLeft(s *stages.StageRun) error {
	var cut []string
	switch s.State {
	case stages.StageDeploying:
		cut = []string{"deploy", "rollback"}
	case stages.StageVerifying:
		cut = []string{"after"}
	case stages.StageUndoing:
		cut = []string{"rollback"}
	}
	for _, when := range cut {
		if err := run.EndMarked(r.mark(), "SNAPFS_STAGE="+s.Name, "SNAPFS_WHEN="+when); err != nil {
			return fmt.Errorf("ending what an interrupted command left running: %w", err)
		}
	}
	return nil
}

// mark returns the environment variable that snapfs gives the commands of this pipeline (promotion through
// stages) on the host, so that a later process finds those left running.
func (r *pipelineRun) mark() string { return "SNAPFS_PROMOTION=" + r.p.ID }

// resumePipeline returns an unfinished promotion through stages and the file that holds its lock, which the
// caller closes. id is that of the promotion, or the name of its sandbox; "" means the only one.
func (pl *Runner) resumePipeline(id string) (*stages.Pipeline, *os.File, error) {
	if _, err := pl.engine.Stages.Read(id); errors.Is(err, errs.ErrNotFound) {
		if id, err = pl.engine.Stages.OnlyOpen(id); err != nil {
			return nil, nil, err
		}
	}
	if _, err := pl.engine.Stages.Read(id); err != nil {
		return nil, nil, err
	}
	lock, err := stages.TryLock(pl.engine.Stages.Dir(id))
	for tries := 0; err != nil && tries < 20; tries++ { // listing holds each lock for an instant
		time.Sleep(5 * time.Millisecond)
		lock, err = stages.TryLock(pl.engine.Stages.Dir(id))
	}
	if err != nil {
		return nil, nil, &errs.Error{Op: "going on with", Subject: id, Kind: errs.ErrBusy, Err: errors.New("another command works on it")}
	}
	p, err := pl.engine.Stages.Read(id) // read it again under the lock
	if err == nil && p.State != stages.PipelineOpen {
		err = &errs.Error{
			Op: "going on with", Subject: id, Kind: errs.ErrNotFound, Err: fmt.Errorf("it has ended: %s", p.State),
			Hints: []string{"snapfs promote " + p.Sandbox + " --to " + p.To},
		}
	}
	if err == nil {
		err = pl.engine.Reconcile.RefuseUnfinished("going on with", p.Sandbox, "")
	}
	if err == nil {
		p.Content, err = pl.engine.Stages.ReadContent(id)
	}
	if err != nil {
		lock.Close()
		return nil, nil, err
	}
	p.Running = false
	return p, lock, nil
}

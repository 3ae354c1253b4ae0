package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/run"
)

// A pipelineRun is a process that works on a pipeline, and has its lock.
type pipelineRun struct {
	e *Engine
	p *Pipeline
	w StageWatcher
	// resumed: the present step may have been begun by a process that is gone.
	resumed bool
	// began is when this attempt at the stage did, and left what remains of the
	// time of its commands.
	began time.Time
	left  time.Duration
}

func (r *pipelineRun) tell(s *StageRun, what string) {
	if r.w.Tell != nil {
		r.w.Tell(s.Name, what)
	}
}

// enter writes down what comes next.
func (r *pipelineRun) enter(ctx context.Context, s *StageRun, next StageState) error {
	if err := fault.Point(ctx, "enter "+string(next)); err != nil {
		return err
	}
	before := *s
	now := time.Now()
	s.Took += policy.Duration(now.Sub(r.began))
	r.began = now
	s.State, s.Step = next, now
	if next.ended() {
		s.Ended = now
	}
	if next == StageFailed || next == StageStuck || next == StageTakenBack {
		r.p.State, r.p.Ended = PipelineFailed, now
	}
	if err := r.e.savePipeline(r.p); err != nil {
		*s = before
		return err
	}
	return nil
}

// stage works on stage i until it is done.
func (r *pipelineRun) stage(ctx context.Context, i int) error {
	s := &r.p.Stages[i]
	r.began, r.left = time.Now(), time.Duration(s.Timeout)
	if s.Began.IsZero() {
		s.Began = r.began
	}
	for s.State != StageDone {
		var err error
		switch s.State {
		case StagePending, StageWaiting:
			err = r.admit(ctx, i)
		case StageChecking:
			err = r.checkBefore(ctx, i)
		case StagePromoting:
			err = r.carry(ctx, i)
		case StageDeploying:
			err = r.deploy(ctx, i)
		case StageVerifying:
			err = r.checkAfter(ctx, i)
		case StageUndoing:
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

// fail ends a stage of which nothing was carried. What was interrupted has not
// failed, and goes on from its last step.
func (r *pipelineRun) fail(ctx context.Context, s *StageRun, err error) error {
	if ctx.Err() != nil || fleeting(err) {
		return err
	}
	s.Why = describe(err)
	return errors.Join(err, r.enter(ctx, s, StageFailed))
}

// fleeting: what was in the way says nothing of the stage, and may be gone next time.
func fleeting(err error) bool {
	return errors.Is(err, errs.ErrNoSpace) || errors.Is(err, errs.ErrBusy)
}

// admit makes the plan of a stage, and lets it begin where it is approved.
func (r *pipelineRun) admit(ctx context.Context, i int) error {
	s := &r.p.Stages[i]
	if err := r.e.sameContent(ctx, r.p); err != nil {
		return err
	}
	var plan *CarryPlan
	if s.carries() {
		var err error
		if plan, err = r.e.planStage(ctx, r.p, i); err != nil {
			return r.fail(ctx, s, err)
		}
		s.Changes, s.Held = plan.Count(), len(plan.Held)
	}
	fingerprint := ""
	if plan != nil {
		fingerprint = plan.Fingerprint
	}
	waited := s.State == StageWaiting
	if s.Approved != nil && s.Approved.Plan != fingerprint {
		s.Approved = nil
		r.tell(s, "what it would do has changed since it was approved")
	}
	s.Plan = fingerprint
	if s.Approved == nil && s.Approval == policy.Ask {
		if r.w.Ask == nil || !r.w.Ask(r.p, s, plan) {
			if ctx.Err() == nil || !waited {
				if err := r.enter(context.WithoutCancel(ctx), s, StageWaiting); err != nil {
					return err
				}
			}
			return ErrWaiting
		}
		s.Approved = &StageApproval{By: whoAmI(), When: time.Now(), Asked: true, Plan: fingerprint}
	}
	if s.Approved == nil {
		s.Approved = &StageApproval{By: r.p.By, When: time.Now(), Plan: fingerprint}
	}
	r.began = time.Now() // waiting for a person does not count
	return r.enter(ctx, s, StageChecking)
}

// planStage is what a stage would carry.
func (e *Engine) planStage(ctx context.Context, p *Pipeline, i int) (*CarryPlan, error) {
	o := promoteOptions(p, i)
	c, done, err := e.beginCarry(ctx, p.Sandbox, o.PlanOptions, o.answers())
	if err != nil {
		return nil, err
	}
	defer done()
	if len(c.plan.Conflicts) > 0 {
		return nil, conflictsError("promoting", p.Sandbox, c.plan.Conflicts)
	}
	if err := c.print(ctx); err != nil {
		return nil, err
	}
	return c.plan, e.savePlan(c.plan)
}

// carry carries the plan out that was checked, unless the process before this one
// has.
func (r *pipelineRun) carry(ctx context.Context, i int) error {
	s := &r.p.Stages[i]
	if r.resumed {
		id, err := r.carried(i)
		if err != nil {
			return err
		}
		if s.Promotion = id; id != "" {
			return r.enter(ctx, s, StageVerifying)
		}
	}
	switch {
	case s.Changes == 1:
		r.tell(s, "carrying 1 change to "+pathlist.Printable(s.Target))
	case s.Changes > 0:
		r.tell(s, fmt.Sprintf("carrying %d changes to %s", s.Changes, pathlist.Printable(s.Target)))
	default:
		r.tell(s, "nothing to carry to "+pathlist.Printable(s.Target))
	}
	o := promoteOptions(r.p, i)
	o.Plan = s.Plan
	done, err := r.e.Promote(ctx, r.p.Sandbox, o)
	if err != nil {
		return r.fail(ctx, s, err)
	}
	s.Promotion = done.ID
	return r.enter(context.WithoutCancel(ctx), s, StageVerifying)
}

// carried finds the promotion that a process made that was killed before it could
// write that down.
func (r *pipelineRun) carried(i int) (string, error) {
	all, err := r.e.Promotions()
	if err != nil {
		return "", err
	}
	for _, m := range all {
		if !isApply(m.Group) && m.Sandbox == r.p.Sandbox && m.Path == r.p.target(i) && !m.When.Before(r.p.Stages[i].Step) && !r.p.has(m.Group) {
			return m.Group, nil
		}
	}
	return "", nil
}

// has reports whether a promotion is that of one of the stages.
func (p *Pipeline) has(promotion string) bool {
	for _, s := range p.Stages {
		if s.Promotion == promotion {
			return true
		}
	}
	return false
}

// takeBack takes a stage back, and no other, because of why. It goes on though
// somebody interrupts it: the target must not stay as it is.
func (r *pipelineRun) takeBack(ctx context.Context, i int, why error) error {
	s := &r.p.Stages[i]
	ctx = context.WithoutCancel(ctx)
	r.tell(s, "taking it back")
	var err error
	switch {
	case s.Deploy != nil:
		r.left = time.Duration(s.Timeout)
		if err = r.endLeft(s); err == nil {
			err = r.command(ctx, i, "rollback", 1, *s.Rollback)
		}
	case s.Promotion != "":
		_, err = r.e.Undo(ctx, s.Promotion)
		if r.resumed && errors.Is(err, errs.ErrNotFound) {
			err = nil // that was done before the kill
		}
	}
	if err != nil {
		s.Why = describe(why) + "; and it could not be taken back: " + describe(err)
		return errors.Join(why, stuck{err}, r.enter(ctx, s, StageStuck))
	}
	return errors.Join(why, r.enter(ctx, s, StageTakenBack))
}

// stuck is what was in the way of taking a stage back.
type stuck struct{ error }

func (s stuck) Error() string { return "it could not be taken back: " + describe(s.error) }

// Unwrap says nothing of a command: the one that failed first is told.
func (s stuck) Unwrap() error { return errs.KindOf(s.error) }

// cancel takes back what a stage has done that is not done.
func (r *pipelineRun) cancel(ctx context.Context, i int) error {
	s := &r.p.Stages[i]
	r.began = time.Now()
	given := errors.New("it was cancelled by " + whoAmI())
	s.Why = given.Error()
	switch s.State {
	case StagePromoting:
		id, err := r.carried(i)
		if err != nil {
			return err
		}
		s.Promotion = id
	case StageDeploying, StageVerifying, StageUndoing:
	default:
		return r.enter(ctx, s, StageFailed)
	}
	if s.Promotion == "" && s.Deploy == nil {
		return r.enter(ctx, s, StageFailed)
	}
	if err := r.endLeft(s); err != nil {
		return err
	}
	if err := r.enter(ctx, s, StageUndoing); err != nil {
		return err
	}
	err := r.takeBack(ctx, i, given)
	if s.State == StageTakenBack {
		return nil
	}
	return err
}

// endLeft ends what a process that was killed has left running on the real
// machine, of what the stage was in the middle of: what an earlier command of it
// has started to stay stays.
func (r *pipelineRun) endLeft(s *StageRun) error {
	var cut []string
	switch s.State {
	case StageDeploying:
		cut = []string{"deploy", "rollback"}
	case StageVerifying:
		cut = []string{"after"}
	case StageUndoing:
		cut = []string{"rollback"}
	}
	for _, when := range cut {
		if err := run.EndMarked(r.mark(), "SNAPFS_STAGE="+s.Name, "SNAPFS_WHEN="+when); err != nil {
			return fmt.Errorf("ending what an interrupted command left running: %w", err)
		}
	}
	return nil
}

// mark is in the environment of all commands on the real machine.
func (r *pipelineRun) mark() string { return "SNAPFS_PROMOTION=" + r.p.ID }

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/isolate"
)

// checkBefore runs the checks that the profile sets before the promotion of stage i. They run in a sandbox
// whose workspace is the stage's target directory with the planned promotion applied.
func (r *pipelineRun) checkBefore(ctx context.Context, i int) error {
	s := &r.p.Stages[i]
	next := stages.StagePromoting
	switch {
	case s.Deploy != nil:
		next = stages.StageDeploying
	case s.Target == "":
		next = stages.StageDone
	}
	if len(s.Before) == 0 {
		return r.enter(ctx, s, next)
	}
	sb, err := r.e.stageSandbox(ctx, r.p, i)
	if err != nil {
		return r.fail(ctx, s, err)
	}
	for n, c := range s.Before {
		r.report(s, "checking in a sandbox: "+pathlist.Printable(c.Name))
		if err = r.inside(ctx, sb, i, n+1, c); err != nil {
			break
		}
	}
	if derr := sb.Discard(context.WithoutCancel(ctx)); derr != nil {
		r.e.notice("the sandbox of a check is not removed yet: " + derr.Error())
	}
	if err != nil {
		return r.fail(ctx, s, err)
	}
	return r.enter(ctx, s, next)
}

// stageSandbox makes the sandbox in which the checks of stage i of the promotion p run: a fork of the stage's
// target directory with the planned promotion applied. A stage that deploys changes no directory, so its
// sandbox is a fork of the directory that it deploys from.
func (pl *Runner) stageSandbox(ctx context.Context, p *stages.Pipeline, i int) (*engine.Session, error) {
	o := promoteOptions(p, i)
	if !p.Stages[i].HasChanges() {
		rec, err := pl.cat.Get(p.Sandbox)
		if err != nil {
			return nil, err
		}
		return pl.forkOf(ctx, p.Target(i), rec.Policy, nil)
	}
	c, done, err := pl.engine.Reconcile.Begin(ctx, p.Sandbox, o.PlanOptions, o.Answers())
	if err != nil {
		return nil, err
	}
	defer done()
	if err := c.AddSteps(ctx); err != nil {
		return nil, err
	}
	if err := pl.engine.Reconcile.CheckPlan(c.Plan, p.Stages[i].Plan); err != nil {
		return nil, err
	}
	return pl.forkOf(ctx, p.Target(i), c.Rec.Policy, c)
}

// forkOf makes an ephemeral sandbox of the directory dir, for the checks of a promotion's stage. Unless c is
// nil, it applies the planned promotion c to the sandbox's fork. The caller discards the session.
func (pl *Runner) forkOf(ctx context.Context, dir string, policy catalog.Policy, c *reconcile.Promotion) (*engine.Session, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, errs.With("looking for", dir, err)
	}
	rec, intent, err := pl.engine.Sandboxes.Create(ctx, hostfs.Request{Workspace: dir, Policy: policy}, true)
	if err != nil {
		return nil, err
	}
	s := &engine.Session{Record: rec, Engine: pl.engine, Intent: intent}
	if c != nil {
		err = pl.applyTo(ctx, rec, c)
	}
	if err != nil {
		return nil, errors.Join(err, s.Discard(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// applyTo applies the workspace's part of the planned promotion c to the fork of a sandbox that no process
// uses yet.
func (pl *Runner) applyTo(ctx context.Context, rec *catalog.Record, c *reconcile.Promotion) error {
	tree, ok := compare.WorkspaceTree(rec)
	for _, part := range c.Parts {
		if !ok || !part.Part.Workspace || len(part.Changes) == 0 {
			continue
		}
		fork, err := pl.engine.Reconcile.OpenFork(ctx, tree, rec.Workspace)
		if err != nil {
			return err
		}
		err = promote.Replay(ctx, fork.Dir, part.Source(), part.Changes)
		if err := errors.Join(err, fork.Sync(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// limited returns a context for the command c of a stage, such as a check. It ends after the command's own
// timeout, or after the time that the stage has left if that is shorter. limited also returns the cancel
// function, and that time.
func (r *pipelineRun) limited(ctx context.Context, c policy.Command) (context.Context, context.CancelFunc, time.Duration) {
	limit := r.left
	if own := time.Duration(c.Timeout); own > 0 {
		limit = min(limit, own)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	return ctx, cancel, limit
}

// variables returns the environment variables that snapfs sets for a command of stage i of the promotion: the
// promotion, the stage, and when the command runs (before, after, deploy, rollback).
func (r *pipelineRun) variables(i int, when string) []string {
	return []string{
		r.mark(), "SNAPFS_WHEN=" + when, "SNAPFS_SANDBOX=" + r.p.Sandbox, "SNAPFS_STAGE=" + r.p.Stages[i].Name, "SNAPFS_TARGET=" + r.p.Target(i),
	}
}

// inside runs the command c, the check number n before stage i of the promotion, in the sandbox sb. It logs
// the output, and ends every process that the check leaves running. Errors: ErrCheck.
func (r *pipelineRun) inside(ctx context.Context, sb *engine.Session, i, n int, c policy.Command) error {
	log, err := r.openLog(i, "before", n)
	if err != nil {
		return err
	}
	defer log.close()
	// What runs in a sandbox gets no file of the host's that it could do more with
	// than write to its end.
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("opening a pipe: %w", err)
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(log, out) // the exit status decides
	}()
	began := time.Now()
	limited, cancel, limit := r.limited(ctx, c)
	defer cancel()
	env := append(hostfs.Environ(os.Environ(), sb.Record.Policy.Env), r.variables(i, "before")...)
	st, err := sb.Again(limited, isolate.Command{Args: c.Args, Env: env, Dir: sb.Record.Workspace, Stdout: in, Stderr: in})
	in.Close()
	<-copied
	out.Close()
	r.left -= time.Since(began)
	if err == nil {
		r.announce(i, c, events.BeforePromotion, st.ExitCode(), time.Since(began), log)
	}
	var unfit *engine.CommandError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return r.failure(log, c, "it took longer than "+policy.Duration(limit.Round(time.Millisecond)).String())
	case errors.As(err, &unfit):
		return r.failure(log, c, unfit.Error())
	case err != nil:
		return err
	case st.Signal != 0:
		return r.failure(log, c, "it was ended by the signal "+st.Signal.String())
	case st.Code != 0:
		return r.failure(log, c, fmt.Sprintf("exit status %d", st.Code))
	}
	return nil
}

// announce appends an event to the event log: a check of stage i, the command c, has ended. The event has its
// exit status, when it ran and how long it took. The output is in l.
func (r *pipelineRun) announce(i int, c policy.Command, when string, status int, took time.Duration, l *commandLog) {
	rec, err := r.e.engine.Catalog().Get(r.p.Sandbox)
	if err != nil { // another command has removed it; the next step reports that
		return
	}
	r.e.engine.Events().CheckEnded(rec.Name, rec.ID, events.Check{
		Name: r.p.Stages[i].Name, When: when, Args: c.Args, Status: status, Took: took, Output: l.file.Name(),
	})
}

// checkAfter runs the checks that the profile sets after the promotion of stage i, on the host. If one fails,
// it undoes the stage.
func (r *pipelineRun) checkAfter(ctx context.Context, i int) error {
	s := &r.p.Stages[i]
	if err := r.endLeft(s); err != nil {
		return err
	}
	for n, c := range s.After {
		r.report(s, "checking in "+pathlist.Printable(r.p.Target(i))+": "+pathlist.Printable(c.Name))
		err := r.command(ctx, i, "after", n+1, c)
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrCheck) {
			return err
		}
		s.Why = err.Error()
		if eerr := r.enter(context.WithoutCancel(ctx), s, stages.StageUndoing); eerr != nil {
			return errors.Join(err, eerr)
		}
		return r.takeBack(ctx, i, err)
	}
	return r.enter(ctx, s, stages.StageDone)
}

// deploy runs the deploy command of stage i of the promotion on the host. If an earlier attempt was
// interrupted, it first runs the rollback command.
func (r *pipelineRun) deploy(ctx context.Context, i int) error {
	s := &r.p.Stages[i]
	if r.resumed {
		err := r.endLeft(s)
		if err == nil {
			r.report(s, "rolling back a deploy that was cut short")
			err = r.command(ctx, i, "rollback", 1, *s.Rollback)
		}
		if err != nil {
			return err
		}
	}
	r.report(s, "deploying: "+pathlist.Printable(s.Deploy.Name))
	err := r.command(ctx, i, "deploy", 1, *s.Deploy)
	if err == nil {
		return r.enter(context.WithoutCancel(ctx), s, stages.StageVerifying)
	}
	if !errors.Is(err, ErrCheck) {
		return err
	}
	s.Why = err.Error()
	if eerr := r.enter(context.WithoutCancel(ctx), s, stages.StageUndoing); eerr != nil {
		return errors.Join(err, eerr)
	}
	return r.takeBack(ctx, i, err)
}

// command runs the command c of stage i of the promotion on the host, in the stage's directory. when (after,
// deploy or rollback) and n, the number of the command there, name the file for its output. The command's
// environment has the promotion's id, by which a later process finds processes that a killed snapfs left
// running.
func (r *pipelineRun) command(ctx context.Context, i int, when string, n int, c policy.Command) error {
	log, err := r.openLog(i, when, n)
	if err != nil {
		return err
	}
	defer log.close()
	began := time.Now()
	limited, cancel, limit := r.limited(ctx, c)
	defer cancel()
	program := run.Program{
		Name: c.Args[0], Args: c.Args[1:], Dir: r.p.Target(i), Stdout: log.file, Stderr: log.file,
		Env: append(os.Environ(), r.variables(i, when)...),
	}
	err = run.Group(limited, program, when == "deploy" || when == "rollback")
	r.left -= time.Since(began)
	var failed *run.Error
	if when == events.AfterPromotion && (err == nil || errors.As(err, &failed)) {
		status := 0
		if failed != nil {
			status = failed.Code
		}
		r.announce(i, c, when, status, time.Since(began), log)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return r.failure(log, c, "it took longer than "+policy.Duration(limit.Round(time.Millisecond)).String())
	case errors.As(err, &failed) && failed.Code > 0:
		return r.failure(log, c, fmt.Sprintf("exit status %d", failed.Code))
	case errors.As(err, &failed):
		return r.failure(log, c, failed.Err.Error())
	}
	return r.failure(log, c, err.Error())
}

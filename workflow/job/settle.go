package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/workflow/pipeline"
)

// settle continues with the result of a job whose check has passed as its Spec says: it promotes the result,
// or makes the job wait for approval. If the result cannot be promoted, the job waits for a person.
func (s *Store) settle(ctx context.Context, l *locked) error {
	if l.Then == Stages {
		if err := l.become(Promoting, ""); err != nil {
			return err
		}
		return s.throughStages(ctx, l)
	}
	p, err := s.plan(ctx, l)
	switch {
	case err != nil:
		return l.become(Waiting, textOf(err))
	case nothing(p):
		return s.finish(ctx, l, Done, "it changed nothing")
	case l.Then == Hold:
		return l.become(Waiting, "for approval")
	}
	return s.promote(ctx, l)
}

// plan plans the promotion of a job's result. It sets the plan's fingerprint, by which a person approves
// exactly that plan, in the job in memory only.
func (s *Store) plan(ctx context.Context, l *locked) (*reconcile.Plan, error) {
	p, err := s.engine.Reconcile.PlanOf(ctx, l.Sandbox, reconcile.PlanOptions{})
	if err == nil {
		l.Plan, l.Changes = p.Fingerprint, p.Count()
	}
	return p, err
}

func nothing(p *reconcile.Plan) bool {
	return len(p.Steps) == 0 && len(p.Git) == 0 && len(p.Conflicts) == 0
}

// promote promotes the result of a job by exactly the plan that the job stores, which may be reviewed. If the
// promotion is refused, the job waits for a person.
func (s *Store) promote(ctx context.Context, l *locked) error {
	if err := l.become(Promoting, ""); err != nil {
		return err
	}
	var done reconcile.Promoted
	err := poll.Until(ctx, 10*time.Millisecond, time.Second, func() (bool, error) {
		var err error
		done, err = s.engine.Reconcile.Promote(ctx, l.Sandbox, reconcile.PromoteOptions{Plan: l.Plan})
		if errors.Is(err, errs.ErrBusy) { // one promotion runs at a time
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return l.become(Waiting, textOf(err))
	}
	l.Promotion = done.ID
	return s.finish(ctx, l, Done, "")
}

// finish ends a job, a submitted command, in the given state, with the explanation why, and removes its
// sandbox. It stores the state first. If the process is killed in between, the job does not begin again, and
// the next worker removes the sandbox.
func (s *Store) finish(ctx context.Context, l *locked, state State, why string) error {
	if err := l.become(state, why); err != nil {
		return err
	}
	return s.tidy(ctx, l)
}

// tidy removes the sandbox of a job (submitted command), if it has one, and stores that it is removed. It
// leaves a sandbox of the same name that was there before the job began.
func (s *Store) tidy(ctx context.Context, l *locked) error {
	if l.Sandbox == "" {
		return nil
	}
	for _, name := range []string{l.Sandbox, l.Name()} { // a worker may have been killed between renaming and storing
		rec, err := s.engine.Catalog().Get(name)
		if err == nil && l.owns(rec) {
			err = s.removeLeft(ctx, name)
		}
		if err != nil && !errors.Is(err, errs.ErrNotFound) {
			return err
		}
	}
	l.Sandbox, l.SandboxID = "", ""
	return save(l.dir, l.Job)
}

// leftTime bounds the wait for the processes of a killed worker to end.
const leftTime = 10 * time.Second

// removeLeft removes a sandbox which a killed worker may have left. Its supervisor ends a moment after the worker, and
// the sandbox belongs to a running command until it was mended: so removeLeft mends and tries again, for leftTime.
func (s *Store) removeLeft(ctx context.Context, name string) error {
	for end := time.Now().Add(leftTime); ; {
		err := s.engine.Remove(ctx, name)
		if !errors.Is(err, errs.ErrBusy) || time.Now().After(end) {
			return err
		}
		if _, merr := s.engine.Collect(ctx); merr != nil {
			return errors.Join(err, merr)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pollTime):
		}
	}
}

// owns reports whether the sandbox of rec, which has the name of the job's sandbox, belongs to the job.
// Before the result has passed, this is one that was created since the job began; a person hardly gives a
// sandbox such a name.
func (l *locked) owns(rec *catalog.Record) bool {
	if l.SandboxID != "" {
		return rec.ID == l.SandboxID
	}
	return rec.Name == l.Sandbox && rec.Created.After(l.Began) && rec.Workspace == l.Workspace
}

// throughStages begins or continues the promotion of a job's result through the stages of a profile. If a
// stage needs approval or fails, the job waits.
func (s *Store) throughStages(ctx context.Context, l *locked) error {
	runner := pipeline.New(s.engine)
	p, err := runner.ContinueStages(ctx, l.Sandbox, pipeline.ContinueOptions{Approve: l.Decided != ""})
	if errors.Is(err, errs.ErrNotFound) {
		var o pipeline.StageOptions
		if o.Profile, err = runner.ProfileOf(l.Sandbox, l.Profile); err == nil {
			o.To = l.Stage
			p, err = runner.PromoteStages(ctx, l.Sandbox, o)
		}
	}
	switch {
	case errors.Is(err, pipeline.ErrWaiting):
		return l.become(Waiting, "for approval: "+err.Error())
	case err != nil:
		return l.become(Waiting, textOf(err))
	}
	l.Promotion = lastOf(p)
	return s.finish(ctx, l, Done, "")
}

// lastOf returns the id of the last promotion that p, a promotion through stages, has made; "" if none of its
// stages promoted anything.
func lastOf(p *stages.Pipeline) (id string) {
	for _, run := range p.Stages {
		if run.Promotion != "" {
			id = run.Promotion
		}
	}
	return id
}

// resume continues a job whose worker was killed while it promoted the result. An earlier step of this
// process has completed or reverted the interrupted promotion.
func (w *Worker) resume(ctx context.Context, l *locked) error {
	s := w.Store
	if l.Then == Stages {
		return s.throughStages(ctx, l)
	}
	had := l.Plan
	p, err := s.plan(ctx, l)
	switch {
	case errors.Is(err, errs.ErrNotFound):
		return l.become(Failed, "its sandbox was removed while it was promoted; see snapfs undo --list")
	case err != nil:
		return l.become(Waiting, textOf(err))
	case nothing(p):
		l.Plan, l.Promotion = had, s.promotionOf(l.Sandbox)
		return s.finish(ctx, l, Done, "")
	case l.Decided != "" && l.Plan != had: // a person approved another plan
		return l.become(Waiting, "for approval: the real tree has changed since the last one")
	}
	return s.promote(ctx, l)
}

// promotionOf returns the id of the newest promotion of the sandbox called sandbox, or "" if it has none.
func (s *Store) promotionOf(sandbox string) string {
	all, _ := pipeline.New(s.engine).History() // what cannot be read is not this one, or has no name to give
	for _, h := range all {
		if h.Sandbox == sandbox && h.Promotion != "" {
			return h.Promotion
		}
	}
	return ""
}

// waiting locks the job with this number, which waits until a person approves or rejects its result, for the
// operation op. ErrInvalid: it does not wait.
func (s *Store) waiting(op string, number int) (*locked, error) {
	l, err := s.lock(op, number)
	if err != nil {
		return nil, err
	}
	if l.State != Waiting {
		defer l.unlock()
		return nil, wrongState(op, l.Job)
	}
	return l, nil
}

// shortPlan is how many digits of the fingerprint of a promotion's plan a person must give at least, to
// approve a job's result by exactly that plan.
const shortPlan = 12

// Approve promotes the result of a waiting job, by exactly the plan that the job has. plan is the start of
// the plan's fingerprint, of 12 digits or more, or "" for any plan. Errors: ErrDrifted if the plan is another
// one now, which the job then has; ErrInvalid if it does not wait; those of [reconcile.Reconciler.Promote]
// and of [pipeline.Runner.PromoteStages]. After an error the job still waits, unless its state is Done: then
// it was promoted, and a worker removes its sandbox.
func (s *Store) Approve(ctx context.Context, number int, plan string) (*Job, error) {
	const op = "approving job"
	l, err := s.waiting(op, number)
	if err != nil {
		return nil, err
	}
	defer l.unlock()
	if plan != "" && (len(plan) < shortPlan || !strings.HasPrefix(l.Plan, plan)) {
		return nil, errs.New(op, l.Sandbox, errs.ErrDrifted, "the job holds another plan", fmt.Sprintf("snapfs job show %d", number))
	}
	l.Decided = whoami()
	if l.Then != Stages {
		had := l.Plan
		p, err := s.plan(ctx, l)
		switch {
		case err != nil:
			return nil, errs.With(op, "", err)
		case nothing(p): // a person has promoted the sandbox
			l.Plan, l.Promotion = had, s.promotionOf(l.Sandbox)
			return l.Job, s.finish(ctx, l, Done, "")
		case p.Refused(reconcile.PlanOptions{}) != nil:
			return nil, errs.With(op, "", p.Refused(reconcile.PlanOptions{}))
		case l.Plan != had:
			return nil, s.changed(op, l)
		}
	}
	if l.Then == Stages {
		err = l.become(Promoting, "")
		if err == nil {
			err = s.throughStages(ctx, l)
		}
	} else {
		err = s.promote(ctx, l)
	}
	if err == nil && l.State == Waiting {
		err = errs.New(op, strconv.Itoa(number), errs.ErrConflict, l.Why, fmt.Sprintf("snapfs job show %d", number))
	}
	return l.Job, err
}

// changed stores that a job waits for approval again, because the plan of its promotion has changed since a
// person reviewed it. It returns the ErrDrifted that says so.
func (s *Store) changed(op string, l *locked) error {
	l.Decided = ""
	return errors.Join(&errs.Error{
		Op: op, Subject: strconv.Itoa(l.Number), Kind: errs.ErrDrifted,
		Err:   errors.New("the real tree or the sandbox has changed since its plan was made, so the plan is another one now"),
		Hints: []string{"snapfs plan " + errs.Quoted(l.Sandbox), fmt.Sprintf("snapfs job approve %d", l.Number)},
	}, l.become(Waiting, "for approval: its plan has changed"))
}

// Reject ends a job that waits for a person, without promoting its result, and removes its sandbox. If a
// stage of a profile waits, the stages before it are undone. Errors: ErrInvalid if it does not wait.
func (s *Store) Reject(ctx context.Context, number int) (*Job, error) {
	const op = "rejecting job"
	l, err := s.waiting(op, number)
	if err != nil {
		return nil, err
	}
	defer l.unlock()
	if l.Then == Stages {
		_, err := pipeline.New(s.engine).CancelStages(ctx, l.Sandbox, pipeline.StageWatcher{})
		if err != nil && !errors.Is(err, errs.ErrNotFound) {
			return nil, errs.With(op, "", err)
		}
	}
	l.Decided = whoami()
	return l.Job, s.finish(ctx, l, Rejected, "")
}

// Cancel ends a job that is queued, or requests the end of one that runs: its worker ends it, with its
// processes, within a second, and the returned job is still Running. Errors: ErrInvalid for a job that has
// ended, that waits, or that is being promoted.
func (s *Store) Cancel(number int) (*Job, error) {
	const op = "cancelling job"
	l, err := s.lock(op, number)
	if err == nil {
		defer l.unlock()
		if l.State != Queued && l.State != Running {
			return nil, wrongState(op, l.Job)
		}
		l.Decided = whoami()
		if l.Direct != "" { // and its worker was killed
			return l.Job, errors.Join(run.EndMarked(l.mark()), l.become(Cancelled, partOfIt))
		}
		return l.Job, l.become(Cancelled, "")
	}
	if !errors.Is(err, errs.ErrBusy) {
		return nil, err
	}
	j, err := s.Get(number)
	if err != nil {
		return nil, err
	}
	if j.State != Queued && j.State != Running {
		return nil, wrongState(op, j)
	}
	f, err := os.OpenFile(filepath.Join(s.path(number), cancelFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, errs.With(op, s.path(number), err)
	}
	j.Why = "it is being cancelled"
	return j, f.Close()
}

// Remove removes a job (submitted command) that has ended, with its output, from the state directory. Errors:
// ErrInvalid for one that has not ended.
func (s *Store) Remove(ctx context.Context, number int) error {
	const op = "removing job"
	l, err := s.lock(op, number)
	if err != nil {
		return err
	}
	defer l.unlock()
	if !l.State.Final() {
		return wrongState(op, l.Job)
	}
	if err := s.tidy(ctx, l); err != nil {
		return err
	}
	return errs.With(op, l.dir, os.RemoveAll(l.dir))
}

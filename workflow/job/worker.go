package job

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/workflow/race"
)

// A Worker carries out the queued jobs of a Store: it runs their commands in sandboxes. Several may work on
// one Store, in any number of processes.
type Worker struct {
	Store *Store
	// Jobs is how many run at once; 0 means one for each processor.
	Jobs int
	// Once ends Work as soon as no job is left that it can carry out.
	Once bool
	// Notify is called with each job whose state changed, from several goroutines. It may be nil.
	Notify func(j Job)
}

const (
	// mostTries is how often a worker begins a job whose worker was killed each time, before the job fails.
	mostTries = 3
	// pollTime is how long a worker, which runs the queued jobs, waits between two checks for new and
	// cancelled ones.
	pollTime = 500 * time.Millisecond
	// patience is how long a job waits until the host has the capacity for its sandbox. Then the job fails.
	patience = 24 * time.Hour
)

// Work carries out the queued jobs, the most urgent first, and those whose worker was killed, until ctx ends,
// which is no error. A job that runs then is stopped, and queued again. Work returns when no job of its own
// runs.
func (w *Worker) Work(ctx context.Context) error {
	slots := w.Jobs
	if slots == 0 {
		slots = runtime.NumCPU()
	}
	var running sync.WaitGroup
	defer running.Wait()
	ended := make(chan struct{}, slots)
	tried := map[int]bool{} // ended jobs whose sandbox cannot be removed now
	rested, complained := map[int]time.Time{}, ""
	for busy := 0; ; {
		if err := w.Store.submitDue(ctx, rested); err != nil && err.Error() != complained { // the jobs go on
			complained = err.Error()
			w.Store.engine.Notice("triggers: " + complained)
		}
		jobs, err := w.Store.List()
		if err != nil && len(jobs) == 0 {
			return err
		}
		jobs = slices.DeleteFunc(jobs, func(j Job) bool { return !j.needsWorker() })
		order(jobs)
		for _, j := range jobs {
			if busy == slots || ctx.Err() != nil {
				break
			}
			if tried[j.Number] {
				continue
			}
			l, err := w.Store.lock("carrying out job", j.Number)
			if err != nil {
				continue // another worker has it, or it was removed
			}
			if !l.needsWorker() {
				l.unlock()
				continue
			}
			tried[j.Number] = l.State.Final()
			busy++
			running.Go(func() {
				defer func() { ended <- struct{}{} }()
				defer l.unlock()
				w.carryOut(ctx, l)
			})
		}
		if w.Once && busy == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			busy--
		case <-time.After(pollTime):
		}
	}
}

// carryOut works on a locked job, a submitted command, until it needs no worker any more: it has ended, or
// waits for a person. If ctx ends it queues the job again.
func (w *Worker) carryOut(ctx context.Context, l *locked) {
	var err error
	switch {
	case l.State == Promoting:
		err = w.resume(ctx, l)
	case l.State.Final():
		err = w.Store.tidy(ctx, l)
	case l.Direct != "":
		err = w.abandonDirect(ctx, l)
	case l.cancelled():
		err = w.Store.finish(ctx, l, Cancelled, "")
	case !l.Deadline.IsZero() && time.Now().After(l.Deadline):
		err = w.Store.finish(ctx, l, Failed, "it had not begun at its deadline")
	case l.Tries >= mostTries:
		err = w.Store.finish(ctx, l, Failed, fmt.Sprintf("the processes of %d workers ended while they carried it out", mostTries))
	default:
		err = w.run(ctx, l)
	}
	switch {
	case err == nil || ctx.Err() != nil || l.State.Final():
	case l.SandboxID != "": // the result stays
		err = errors.Join(err, l.become(Waiting, textOf(err)))
	default:
		err = errors.Join(err, l.become(Failed, textOf(err)))
	}
	if err != nil {
		w.Store.engine.Notice(fmt.Sprintf("job %d: %v", l.Number, err))
	}
	w.notify(l)
}

func (w *Worker) notify(l *locked) {
	if w.Notify != nil {
		w.Notify(*l.Job)
	}
}

// textOf returns the text of err with its first hint. It is stored as the explanation of the state of a job.
func textOf(err error) string {
	if hints := errs.HintsOf(err); len(hints) > 0 {
		return err.Error() + "; hint: " + hints[0]
	}
	return err.Error()
}

// run runs the command of a job and its check in a new sandbox, and continues with the result as the job
// says, for example by promoting it.
func (w *Worker) run(ctx context.Context, l *locked) error {
	if err := w.Store.tidy(ctx, l); err != nil { // of a worker that was killed
		return err
	}
	l.Tries++
	l.Began, l.Exit, l.Checked = time.Now().UTC(), nil, nil
	why, err := l.direct()
	if err != nil {
		return err
	}
	if why != "" {
		return w.runDirect(ctx, l, why)
	}
	l.Sandbox, l.SandboxID = fmt.Sprintf("%s-1", l.Name()), "" // as package race names the sandbox of a first attempt
	if err := l.become(Running, ""); err != nil {
		return err
	}
	w.notify(l)
	running, stop := l.untilCancelled(ctx)
	defer stop()
	request := w.request(l)
	request.Progress = func(a race.Attempt) { w.blocked(l, a) }
	contest, err := race.New(w.Store.engine).Race(running, request)
	if err != nil {
		if l.Sandbox = ""; running.Err() == nil {
			return err
		}
		return w.interrupted(ctx, l)
	}
	after := context.WithoutCancel(ctx)
	if stop(); l.cancelled() {
		return errors.Join(contest.Close(after), w.interrupted(ctx, l))
	}
	return errors.Join(w.judge(after, l, contest), contest.Close(after))
}

// blocked stores in a running job why its command cannot go on, such as a spent budget, when the attempt a, which
// carries it out, says so.
func (w *Worker) blocked(l *locked, a race.Attempt) {
	if a.State != race.Running || a.Why == "" || a.Why == l.Why {
		return
	}
	if err := l.become(Running, a.Why); err != nil {
		w.Store.engine.Notice(fmt.Sprintf("job %d: %v", l.Number, err))
	}
	w.notify(l)
}

// untilCancelled returns a context that ends with ctx, when stop is called, or once another process has
// requested the end of the job.
func (l *locked) untilCancelled(ctx context.Context) (running context.Context, stop context.CancelFunc) {
	running, stop = context.WithCancel(ctx)
	go func() {
		for tick := time.NewTicker(pollTime); ; {
			select {
			case <-running.Done():
				tick.Stop()
				return
			case <-tick.C:
				if l.cancelled() {
					stop()
				}
			}
		}
	}()
	return running, stop
}

// interrupted stores, after a job was interrupted, that it was cancelled or, if the worker itself is to end,
// that it is queued again.
func (w *Worker) interrupted(ctx context.Context, l *locked) error {
	if l.Sandbox = ""; l.cancelled() || ctx.Err() == nil {
		return l.become(Cancelled, "")
	}
	l.Tries--
	return l.become(Queued, "its worker was stopped")
}

func (w *Worker) request(l *locked) race.Request {
	wait := patience
	if !l.Deadline.IsZero() {
		wait = max(time.Second, time.Until(l.Deadline))
	}
	command := func(args []string) isolate.Command { return isolate.Command{Args: args, Env: l.Env, Dir: l.Dir} }
	r := race.Request{
		Request: hostfs.Request{
			Name: l.Name(), Workspace: l.Workspace, Backend: l.Backend, Frozen: l.Frozen, Policy: l.Policy,
			Admission: admission.Options{Queue: wait},
		},
		Attempts: []isolate.Command{command(l.Command)}, Timeout: l.Timeout, Output: w.Store.OutputDir(l.Number),
	}
	if len(l.Check) > 0 {
		check := command(l.Check)
		r.Check = &check
	}
	return r
}

// judge stores how a job's command and check ended, and continues with the result if the check passed.
// contest is the finished race, package race's run of commands in sandboxes, with the job as its only
// attempt.
func (w *Worker) judge(ctx context.Context, l *locked, contest *race.Race) error {
	a := contest.Attempts[0]
	if a.Ended != nil {
		l.Exit = &a.Ended.Status
	}
	if a.Checked != nil {
		l.Checked = &a.Checked.Status
	}
	if a.State != race.Passed {
		l.Sandbox = ""
		why := string(a.State)
		switch {
		case a.Why != "":
			why = a.Why
		case a.Checked != nil:
			why = fmt.Sprintf("its check ended with status %d", a.Checked.Status)
		case a.Ended != nil:
			why = fmt.Sprintf("its command ended with status %d", a.Ended.Status)
		}
		return l.become(Failed, why)
	}
	name, err := contest.Keep(ctx, 1)
	if err != nil {
		return err
	}
	rec, err := w.Store.engine.Catalog().Get(name)
	if err != nil {
		return err
	}
	l.SandboxID = rec.ID
	if err := save(l.dir, l.Job); err != nil {
		return err
	}
	if w.Store.engine.Rename(ctx, name, l.Name()) == nil { // a person may have taken the shorter name
		l.Sandbox = l.Name()
	}
	return w.Store.settle(ctx, l)
}

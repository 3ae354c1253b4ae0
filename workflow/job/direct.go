package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
)

// partOfIt explains the end of a job that was cancelled while it ran without a sandbox.
const partOfIt = "it ran without a sandbox, and may have done a part of its work"

// whyDirect returns the reason for which a job runs without a sandbox, by its profile and the effects that
// its submitter declared, or "". A job with a check, stages or a self-test always has a sandbox.
func (s *Spec) whyDirect() string {
	if len(s.Check) > 0 || s.Then == Stages || s.Policy.Prove {
		return ""
	}
	return s.Policy.Direct.Why(s.Command, s.Effects)
}

// direct returns the reason for which this job runs without a sandbox now, by its profile and by the
// administrator's policy for this host, which may have changed since it was submitted, or "". Errors: those
// of policy.ReadSite.
func (l *locked) direct() (string, error) {
	if l.whyDirect() == "" {
		return "", nil
	}
	now := l.Spec
	if err := policy.BoundBySite(&now.Policy); err != nil {
		return "", err
	}
	return now.whyDirect(), nil
}

// runDirect runs the command of a job in the real workspace, without a sandbox, for the reason why, which it
// stores first. The command has the environment of the worker. When the worker is stopped or the job is cancelled,
// the command is ended. A job that has begun so does not begin again.
func (w *Worker) runDirect(ctx context.Context, l *locked, why string) error {
	l.Direct = why
	if err := l.become(Running, "without a sandbox: "+why); err != nil {
		return err
	}
	w.notify(l)
	running, stop := l.untilCancelled(ctx)
	defer stop()
	if l.Timeout > 0 {
		var cancel context.CancelFunc
		running, cancel = context.WithTimeout(running, l.Timeout)
		defer cancel()
	}
	err := w.onHost(running, l)
	after := context.WithoutCancel(ctx)
	var ended *run.Error
	if errors.As(err, &ended) && ended.Code >= 0 {
		l.Exit = &ended.Code
	} else if err == nil {
		l.Exit = new(int)
	}
	switch {
	case err == nil:
		return w.Store.finish(after, l, Done, "it ran without a sandbox: "+why)
	case l.cancelled():
		return w.Store.finish(after, l, Cancelled, partOfIt)
	case ctx.Err() != nil:
		return w.Store.finish(after, l, Failed, "its worker was stopped while it ran without a sandbox, so it may have done a part of its work")
	case errors.Is(running.Err(), context.DeadlineExceeded):
		return w.Store.finish(after, l, Failed, fmt.Sprintf("it ran without a sandbox, and was ended after %s", l.Timeout))
	case ended != nil && ended.Code >= 0:
		return w.Store.finish(after, l, Failed, fmt.Sprintf("its command ended with status %d", ended.Code))
	}
	return w.Store.finish(after, l, Failed, textOf(err))
}

// onHost runs the command of a job to its end in the real workspace. Its output goes to the file 1.out in the
// job's output directory, like that of a command in a sandbox. Errors: those of [run.Group].
func (w *Worker) onHost(ctx context.Context, l *locked) error {
	dir := w.Store.OutputDir(l.Number)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.With("carrying out job", dir, err)
	}
	out, err := os.OpenFile(filepath.Join(dir, "1.out"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return errs.With("carrying out job", dir, err)
	}
	defer out.Close()
	name := l.Command[0]
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(l.Dir, name)
	}
	env := append(hostfs.Environ(os.Environ(), l.Policy.Env), l.mark())
	return run.Group(ctx, run.Program{Name: name, Args: l.Command[1:], Env: env, Dir: l.Dir, Stdout: out, Stderr: out}, false)
}

// mark returns the environment variable, as NAME=VALUE, of a job's processes outside of a sandbox, by which
// the next worker finds those that a killed worker left running.
func (l *locked) mark() string { return "SNAPFS_JOB=" + l.dir }

// abandonDirect ends the processes of a job that ran without a sandbox when its worker was killed, and the
// job as failed.
func (w *Worker) abandonDirect(ctx context.Context, l *locked) error {
	if err := run.EndMarked(l.mark()); err != nil {
		return err
	}
	return w.Store.finish(ctx, l, Failed, "its worker was killed while it ran without a sandbox, so it may have done a part of its work")
}

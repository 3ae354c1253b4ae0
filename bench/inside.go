//go:build linux

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/bench/jobs"
	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/undo"
)

// A worker is a process, in a sandbox or outside, that runs pieces of work by name and times them. It is
// controlled by two pipes, for requests and replies.
type worker struct {
	ask    *os.File
	answer *bufio.Reader
	close  func() error
}

// do makes the worker process run the timed job called name, and returns its time by the worker's own clock.
func (w *worker) do(name string) (time.Duration, error) {
	if _, err := fmt.Fprintln(w.ask, name); err != nil {
		return 0, err
	}
	line, err := w.answer.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("hearing from a worker: %w", err)
	}
	line = line[:len(line)-1]
	ns, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return 0, errors.New(line)
	}
	return time.Duration(ns), nil
}

// streams makes the pipes of a worker. It returns a worker without a process, and in theirs the process's
// ends of the pipes, which the caller closes.
func streams() (w *worker, theirs [2]*os.File, err error) {
	in, ask, err := os.Pipe()
	if err != nil {
		return nil, theirs, err
	}
	answer, out, err := os.Pipe()
	if err != nil {
		return nil, theirs, errors.Join(err, in.Close(), ask.Close())
	}
	w = &worker{ask: ask, answer: bufio.NewReader(answer)}
	w.close = func() error { return errors.Join(ask.Close(), answer.Close()) }
	return w, [2]*os.File{in, out}, nil
}

func (l *lab) roleArgs(role string) []string {
	args := []string{"--role", role}
	if l.Quick {
		args = append(args, "--quick")
	}
	return args
}

// outside starts a worker in the directory dir, outside any sandbox. more are further arguments of its
// process. Its close ends the process.
func (l *lab) outside(ctx context.Context, dir string, more ...string) (*worker, error) {
	w, theirs, err := streams()
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		err := run.Run(ctx, run.Program{Name: l.Self, Args: append(l.roleArgs(RoleWork), more...), Env: jobs.Env(dir), Dir: dir, Stdin: theirs[0], Stdout: theirs[1]})
		done <- errors.Join(err, theirs[0].Close(), theirs[1].Close())
	}()
	hangUp := w.close
	w.close = func() error { return errors.Join(hangUp(), <-done) }
	return w, nil
}

// within starts a worker in the directory dir of the sandbox called name. Its close ends the process.
func (l *lab) within(ctx context.Context, e *engine.Engine, name, dir string) (*worker, error) {
	w, theirs, err := streams()
	if err != nil {
		return nil, err
	}
	p, err := e.Supervise.Exec(ctx, name, engine.Command{
		Args: append([]string{l.Self}, l.roleArgs(RoleWork)...), Env: jobs.Env(dir), Dir: dir,
		Stdin: theirs[0], Stdout: theirs[1],
	})
	theirs[0].Close()
	theirs[1].Close()
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	hangUp := w.close
	w.close = func() error {
		err := hangUp()
		_, werr := p.Wait(context.WithoutCancel(ctx))
		return errors.Join(err, werr, p.Close())
	}
	return w, nil
}

// A bout is a pair of workers that run the same jobs, to compare their times: one on the bare tree, one in a
// sandbox of the tree.
type bout struct {
	bare, inside *worker
	back         undo.Stack
}

// workOf returns the workspace of the workers of a setting.
func workOf(s setting) string { return filepath.Join(s.Dir, "work") }

// openBout fills a workspace, makes a sandbox of it and starts a worker in each. b.back stops and removes all
// of them.
func (l *lab) openBout(ctx context.Context, s setting) (_ *bout, err error) {
	l.Say(s.Name + ": preparing work")
	b := &bout{}
	defer func() {
		if err != nil {
			b.back.UndoInto(&err)
		}
	}()
	dir := workOf(s)
	if err := makeTop(dir); err != nil {
		return nil, err
	}
	b.back.Push("remove the work", func() error { return uproot(dir) })
	if err := run.Run(ctx, run.Program{Name: l.Self, Args: l.roleArgs(RolePrepare), Env: jobs.Env(dir), Dir: dir}); err != nil {
		return nil, err
	}
	e, err := l.open(ctx, s.State)
	if err != nil {
		return nil, err
	}
	b.back.Push("remove the sandbox", func() error { return Clear(context.WithoutCancel(ctx), s.State) })
	if _, err := e.New(ctx, hostfs.Request{Name: "inside", Workspace: dir, Backend: s.Driver, Policy: policy()}); err != nil {
		return nil, err
	}
	if b.bare, err = l.outside(ctx, dir); err != nil {
		return nil, err
	}
	b.back.Push("end the worker outside", b.bare.close)
	if b.inside, err = l.within(ctx, e, "inside", dir); err != nil {
		return nil, err
	}
	b.back.Push("end the worker inside", b.inside.close)
	return b, nil
}

// compete runs the job j in both workers in turns and returns its times on the bare tree and in the sandbox.
func (b *bout) compete(ctx context.Context, j jobs.Job, p timing.Plan) (bare, inside timing.Sample, err error) {
	by := func(name string, w *worker) timing.Subject {
		return timing.Subject{Name: name, Do: func(context.Context) (time.Duration, error) { return w.do(j.Name) }}
	}
	samples, err := timing.Interleave(ctx, p, by("bare", b.bare), by("inside", b.inside))
	return samples[0], samples[1], err
}

// Prepare fills a worker's working directory with the files that the timed jobs read and change.
func Prepare(ctx context.Context, o Options) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if slices.Equal(o.Only, []string{kindLayers}) {
		return jobs.LayerAmountsOf(o.Quick).Fill(ctx, dir)
	}
	return jobs.AmountsOf(o.Quick).Fill(ctx, dir)
}

// Work is the main function of a worker process. For each job name that it reads from in, it runs the job in
// the working directory and writes a line to out: the nanoseconds, or the error. If o.Only selects the kind
// "layers", it offers the jobs that compare layers instead of those that compare sandboxes.
func Work(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	if slices.Equal(o.Only, []string{kindLayers}) {
		return jobs.Work(ctx, jobs.LayerAmountsOf(o.Quick).Jobs(), in, out)
	}
	return jobs.Work(ctx, jobs.AmountsOf(o.Quick).Jobs(), in, out)
}

// inside measures how long each timed job, such as a build, takes in a sandbox of the setting s, relative to
// the bare tree.
func (l *lab) inside(ctx context.Context, s setting) (results []Result, err error) {
	b, err := l.openBout(ctx, s)
	if err != nil {
		return []Result{{Kind: "inside", Setting: s.Name, Error: err.Error()}}, ctx.Err()
	}
	defer b.back.UndoInto(&err)
	for _, j := range jobs.AmountsOf(l.Quick).Jobs() {
		l.Say(s.Name + ": " + j.Name + ", bare and inside")
		bare, in, err := b.compete(ctx, j, timing.Plan{Rounds: min(l.Rounds, 15), Warm: min(l.Rounds-1, 2), Budget: 20 * time.Second})
		if err != nil {
			return results, err
		}
		for _, side := range []timing.Sample{bare, in} {
			r := resultOf(Result{Kind: "inside", What: j.What, Setting: s.Name + ": " + side.Name}, side)
			if side.Name == "inside" {
				r.Ratio = timing.Pairs(in.Took, bare.Took)
			}
			results = append(results, r)
		}
	}
	return results, nil
}

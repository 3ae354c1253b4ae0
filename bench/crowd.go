//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
)

// crowd is how many sandboxes or `snapfs run` processes are made at once when simultaneous operations are
// measured.
const crowd = 100

// crowdFiles is the number of files in the tree from which the hundred simultaneous sandboxes of a
// measurement are made.
const crowdFiles = 1_000

// crowds measures, in one setting, a hundred operations at once: making sandboxes in this process, and whole
// `snapfs run` processes.
func (l *lab) crowds(ctx context.Context, s setting) (results []Result, err error) {
	l.Say(fmt.Sprintf("%s: %d at once", s.Name, crowd))
	dir, giveBack, err := l.borrow(ctx, s, crowdFiles)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, giveBack()) }()
	e, err := l.open(ctx, s.State)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, Clear(context.WithoutCancel(ctx), s.State)) }()
	made, ok := l.crowdRows(s, "new", func(round int) ([]time.Duration, time.Duration, error) {
		each, total, err := l.newCrowd(ctx, e, s, dir, round, crowd)
		return each, total, errors.Join(err, removeNames(ctx, e))
	})
	if !ok {
		return made, ctx.Err()
	}
	ran, _ := l.crowdRows(s, "snapfs run", func(int) ([]time.Duration, time.Duration, error) { return l.runCrowd(ctx, s, dir) })
	return append(made, ran...), ctx.Err()
}

// crowdRows calls f, which runs a hundred operations at once, up to three times. It returns a row of the
// report, named what, with the times of the single operations of the last call, and a row with the total
// times. After an error ok is false, and the only row holds the error.
func (l *lab) crowdRows(s setting, what string, f func(round int) (each []time.Duration, total time.Duration, err error)) (rows []Result, ok bool) {
	row := func(what string, took []time.Duration, err error) Result {
		r := Result{Kind: "crowd", What: what, Setting: s.Name, Files: crowdFiles, AtOnce: crowd, Summary: timing.Summarise(took)}
		if err != nil {
			r.Error = err.Error()
		}
		return r
	}
	n := 3
	if l.Quick {
		n = 1
	}
	var last, totals []time.Duration
	for round := range n {
		each, total, err := f(round)
		if err != nil {
			return []Result{row(what+", each of a crowd", each, err)}, false
		}
		last, totals = each, append(totals, total)
	}
	return []Result{row(what+", each of a crowd", last, nil), row(what+", all of a crowd", totals, nil)}, true
}

// newCrowd makes n sandboxes of the tree dir, a hundred at a time, in this process. It returns the time of
// each and the total time. round is a part of the sandboxes' names.
func (l *lab) newCrowd(ctx context.Context, e *engine.Engine, s setting, dir string, round, n int) ([]time.Duration, time.Duration, error) {
	return timing.Together(ctx, n, crowd, func(ctx context.Context, i int) error {
		_, err := e.New(ctx, hostfs.Request{Name: fmt.Sprintf("crowd-%d-%d", round, i), Workspace: dir, Backend: s.Driver, Policy: policy()})
		return err
	})
}

// runCrowd starts a hundred processes `snapfs run -- true` in dir at once and times each of them.
func (l *lab) runCrowd(ctx context.Context, s setting, dir string) ([]time.Duration, time.Duration, error) {
	p := processes{lab: l, s: s, dir: dir}
	defer p.close()
	var list []timing.Subject
	for range crowd {
		list = append(list, p.timed("snapfs run", "run", "--backend", s.Driver, "--", "true"))
	}
	if p.err != nil {
		return nil, 0, p.err
	}
	return timing.Together(ctx, crowd, crowd, func(ctx context.Context, i int) error {
		_, err := list[i].Do(ctx)
		return err
	})
}

// removeNames removes every sandbox of an engine's state directory, after they were measured.
func removeNames(ctx context.Context, e *engine.Engine) error {
	names, err := e.Names()
	if err != nil {
		return err
	}
	_, _, err = timing.Together(ctx, len(names), 8, func(ctx context.Context, i int) error { return e.Remove(ctx, names[i]) })
	return err
}

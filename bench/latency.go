//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/backends/all"
	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// measure measures the setting s in this process: every operation with each tree size, a hundred operations
// at once, and work inside a sandbox, as far as the options select them.
func (l *lab) measure(ctx context.Context, s setting) ([]Result, error) {
	var results []Result
	for _, files := range l.Sizes {
		if s.Largest > 0 && files > s.Largest || !l.wants("latency") {
			continue
		}
		found, err := l.latencies(ctx, s, files)
		results = append(results, found...)
		if err != nil {
			return results, err
		}
	}
	if !s.Alone && l.wants("crowd") {
		found, err := l.crowds(ctx, s)
		results = append(results, found...)
		if err != nil {
			return results, err
		}
	}
	if !s.Alone && l.wants("inside") {
		found, err := l.inside(ctx, s)
		results = append(results, found...)
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// latencies measures every operation in the setting s with a tree of this many files, first clean, then
// dirty.
func (l *lab) latencies(ctx context.Context, s setting, files int) (results []Result, err error) {
	dir, giveBack, err := l.borrow(ctx, s, files)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, giveBack()) }()
	for _, dirty := range []bool{false, true} {
		l.Say(fmt.Sprintf("%s: %d files, %s", s.Name, files, cleanliness(dirty)))
		g := &stage{lab: l, s: s, files: files, dirty: dirty, workspace: dir}
		found, err := g.latencies(ctx)
		for _, r := range found {
			r.Kind, r.Setting, r.Files, r.Dirty = "latency", s.Name, files, dirty
			results = append(results, r)
		}
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

func cleanliness(dirty bool) string {
	if dirty {
		return "dirty"
	}
	return "clean"
}

// pace returns how many rounds, uncounted first rounds and how much time each operation of the stage gets.
func (g *stage) pace() timing.Plan {
	if g.Quick {
		return timing.Plan{Rounds: g.Rounds, Warm: 1, Budget: time.Second}
	}
	return timing.Plan{Rounds: g.Rounds, Warm: 2, Budget: 15 * time.Second}
}

func (g *stage) latencies(ctx context.Context) (results []Result, err error) {
	collect := func(samples []timing.Sample, err error) error {
		for _, s := range samples {
			results = append(results, resultOf(Result{What: s.Name}, s))
		}
		return err
	}
	subjects, close, err := g.backendCases(ctx)
	if err != nil {
		return []Result{{What: "open", Error: err.Error()}}, ctx.Err()
	}
	if err := errors.Join(collect(timing.Interleave(ctx, g.pace(), subjects...)), close()); err != nil || g.s.Alone {
		return results, err
	}
	if g.e, err = g.open(ctx, g.s.State); err != nil {
		return results, err
	}
	defer func() { err = errors.Join(err, Clear(context.WithoutCancel(ctx), g.s.State)) }()
	if err := g.prepare(ctx); err != nil {
		return append(results, Result{What: "prepare", Error: err.Error()}), ctx.Err()
	}
	if err := collect(timing.Interleave(ctx, g.pace(), g.engineCases()...)); err != nil {
		return results, err
	}
	list, stop, err := g.processCases()
	defer stop()
	if err != nil {
		return results, err
	}
	return results, collect(timing.Interleave(ctx, g.pace(), list...))
}

// backendCases returns the timed operations of the backend itself, such as capture and fork, without an
// engine and with the workspace as the only tree. close frees what they use.
func (g *stage) backendCases(ctx context.Context) (_ []timing.Subject, close func() error, err error) {
	tree := snapshot.Tree{Path: g.workspace}
	data := filepath.Join(g.s.Dir, "data")
	b, err := openDriver(ctx, g.s.Driver, snapshot.Place{Tree: tree, Dir: data})
	if err != nil {
		return nil, nil, err
	}
	n := 0
	var snap snapshot.ID
	var fork snapshot.ForkID
	number := func(context.Context) error {
		n++
		snap, fork = snapshot.ID(fmt.Sprintf("%d-s%d", os.Getpid(), n)), snapshot.ForkID(fmt.Sprintf("%d-f%d", os.Getpid(), n))
		return nil
	}
	base := snapshot.ID(fmt.Sprintf("%d-base", os.Getpid()))
	taken, err := b.Capture(ctx, tree, base)
	if err != nil {
		return nil, nil, err
	}
	drop := func(ctx context.Context) error {
		return errors.Join(b.RemoveFork(ctx, fork), b.Remove(ctx, snap), b.Sweep(ctx))
	}
	grow := func(ctx context.Context) error { _, err := b.Fork(ctx, taken.ID, fork); return err }
	list := []timing.Subject{
		{
			Name: "capture", Before: func(ctx context.Context) error { return errors.Join(number(ctx), g.ready(ctx)) }, After: drop,
			Do: timing.Timing(func(ctx context.Context) error { _, err := b.Capture(ctx, tree, snap); return err }),
		},
		{Name: "fork", Before: number, Do: timing.Timing(grow), After: drop},
		{
			Name: "seal", Before: func(ctx context.Context) error { return errors.Join(number(ctx), grow(ctx)) }, After: drop,
			Do: timing.Timing(func(ctx context.Context) error { _, err := b.Seal(ctx, fork, snap, snapshot.Idle); return err }),
		},
		{
			Name: "remove fork", Before: func(ctx context.Context) error { return errors.Join(number(ctx), grow(ctx)) }, After: drop,
			Do: timing.Timing(func(ctx context.Context) error { return b.RemoveFork(ctx, fork) }),
		},
	}
	return list, func() error {
		ctx := context.WithoutCancel(ctx)
		return errors.Join(b.Remove(ctx, taken.ID), b.Sweep(ctx), removeTree(data))
	}, nil
}

func openDriver(ctx context.Context, name string, place snapshot.Place) (snapshot.Backend, error) {
	var names []string
	for _, d := range all.Drivers {
		if d.Name == name {
			return d.Open(ctx, place)
		}
		names = append(names, d.Name)
	}
	return nil, errors.New("no backend " + name + "; there are " + strings.Join(names, ", "))
}

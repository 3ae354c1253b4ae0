//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
)

// bombChecks returns the checks that overload stays in its sandbox: how much slower one sandbox gets while
// others exhaust their limits.
func (r *referee) bombChecks() []check {
	return []check{{
		name:  "`snapfs run -- true` beside a fork bomb, a memory bomb, a disk writer and a busy loop, with half of the processors in all, to the same alone",
		limit: 3, held: 6, unit: "×", measure: r.amidBombs,
	}}
}

func (r *referee) amidBombs(ctx context.Context) (float64, string, error) {
	dir, err := r.tree(ctx, r.overlay, smallest)
	if err != nil {
		return 0, "", err
	}
	p := r.at(r.overlay, dir)
	defer p.close()
	run := p.timed("run", "run", "--", "true")
	quiet, err := timing.Medians(ctx, r.many(), run)
	if err = errors.Join(err, p.err); err != nil {
		return 0, "", err
	}
	end := r.light(ctx, dir)
	amid, err := timing.Medians(ctx, r.many(), run)
	if err = errors.Join(err, end()); err != nil {
		return 0, "", err
	}
	return timing.Ratio(amid[0], quiet[0]), fmt.Sprintf("beside them %s, alone %s", timing.Ms(amid[0]), timing.Ms(quiet[0])), nil
}

// light starts four sandboxes of the tree dir: a fork bomb, a memory hog, a disk writer and a busy loop. It
// restarts each when its limits end it, and returns when all four run. end stops and removes them.
func (r *referee) light(ctx context.Context, dir string) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var all, begun sync.WaitGroup
	share := float64(runtime.NumCPU()) / 8
	bombs := []struct {
		limits catalog.Limits
		script string
	}{
		{catalog.Limits{CPUs: share, PIDs: 100}, "while :; do sleep 100 & done"},
		{catalog.Limits{CPUs: share, Memory: 64 << 20}, "tail -c 1G /dev/zero"},
		{catalog.Limits{CPUs: share}, "while :; do head -c 64M /dev/zero > bomb; rm bomb; done"},
		{catalog.Limits{CPUs: share}, "while :; do :; done"},
	}
	errs := make([]error, len(bombs))
	for i, b := range bombs {
		begun.Add(1)
		all.Go(func() {
			var once sync.Once
			defer once.Do(begun.Done)
			req := hostfs.Request{Workspace: dir, Backend: r.overlay.Driver, Policy: policy()}
			req.Policy.Limits = b.limits
			for ctx.Err() == nil && errs[i] == nil {
				s, err := r.e.Run(ctx, req, engine.Command{Args: []string{"/bin/sh", "-c", b.script}, Env: []string{searchPath()}, Dir: dir})
				if err == nil {
					once.Do(begun.Done)
					_, err = s.Wait(ctx)
					err = errors.Join(err, s.Discard(context.WithoutCancel(ctx)))
				}
				if ctx.Err() == nil {
					errs[i] = err
				}
			}
		})
	}
	begun.Wait()
	return func() error {
		cancel()
		all.Wait()
		return errors.Join(errs...)
	}
}

//go:build linux

package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/bench/hookload"
	"github.com/snapfs/snapfs/bench/points"
	"github.com/snapfs/snapfs/bench/timing"
)

// pointChecks returns the checks of the automatic snapshots of a running sandbox, which package points measures, and of
// the hooks of a coding agent, of which one takes a snapshot.
func (r *referee) pointChecks() (list []check) {
	for _, s := range []struct {
		setting
		adds, hook float64 // regression bounds in milliseconds
	}{{r.overlay, 15, 60}, {r.btrfsRoot, 40, 60}} {
		l := points.Lab{
			Program: r.Program, State: s.State + "-points", Env: s.env(), Backend: s.Driver, Quick: r.Quick, Open: r.open, Clear: Clear,
			Tree: func(ctx context.Context) (string, error) { return r.tree(ctx, s.setting, points.Files) },
		}
		list = append(list, check{
			name:  "key points before and after a command beside another one add until its status, " + s.Name,
			limit: 5, held: s.adds, unit: "ms", measure: l.Adds,
		}, check{
			name:  "`snapfs hook PostToolBatch` with a checkpoint, p95 of whole processes, " + s.Name,
			limit: 15, held: s.hook, unit: "ms", measure: func(ctx context.Context) (float64, string, error) { return r.hookTakes(ctx, s.setting) },
		})
	}
	return list
}

// hookTakes measures the 95th percentile, in milliseconds, of the hook of a coding agent that takes a checkpoint.
func (r *referee) hookTakes(ctx context.Context, s setting) (float64, string, error) {
	rounds := 200
	if r.Quick {
		rounds = 5
	}
	dir, err := r.tree(ctx, s, crowdFiles)
	if err != nil {
		return 0, "", err
	}
	samples, err := hookload.Session{Program: r.Program, State: s.State, Backend: s.Driver, Dir: dir, Env: s.env()}.Measure(ctx, rounds)
	if err != nil {
		return 0, "", err
	}
	var all [3]timing.Summary
	for i, found := range samples {
		if found.Err != nil {
			return 0, "", found.Err
		}
		all[i] = timing.Summarise(found.Took)
	}
	detail := fmt.Sprintf("p50 %s of %d; PreToolUse p50 %s, p95 %s; snapfs version p50 %s, p95 %s", timing.Ms(all[2].P50), all[2].N,
		timing.Ms(all[1].P50), timing.Ms(all[1].P95), timing.Ms(all[0].P50), timing.Ms(all[0].P95))
	return float64(all[2].P95) / float64(time.Millisecond), detail, nil
}

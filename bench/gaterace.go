//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/workflow/race"
)

// racing is the number of attempts in the race (several commands tried at once) that the checks measure.
const racing = 8

// A race of so many attempts may take raceLimit times as long as its work without snapfs, and makingLimit times as
// long to make its sandboxes as it takes to make one.
const raceLimit, makingLimit = 1.1, 6

// raceChecks returns the checks of how fast `snapfs race` is with several attempts at once.
func (r *referee) raceChecks() []check {
	var list []check
	for _, s := range []*setting{&r.overlay, &r.btrfsRoot} {
		name := strings.SplitN(s.Name, ",", 2)[0]
		list = append(list,
			check{
				name:  fmt.Sprintf("`snapfs race` of %d attempts of work on %s, to the same %d bare at once", racing, name, racing),
				limit: raceLimit, unit: "×", measure: r.raceToBare(s),
			},
			check{
				name:  fmt.Sprintf("the sandboxes of %d attempts on %s until the first runs, to that of one", racing, name),
				limit: makingLimit, unit: "×", measure: r.makingToOne(s),
			},
			check{name: fmt.Sprintf("`snapfs race -n %d -- true` on %s, to `snapfs run -- true`", racing, name), unjudged: true, unit: "×", measure: r.raceToRun(s)})
	}
	return list
}

// raceToBare returns the measuring function of a check: the time of a race whose attempts each need about a
// second of processor time, relative to the same work without snapfs.
func (r *referee) raceToBare(s *setting) measure {
	return r.inTree(s, func(ctx context.Context, p *processes) (float64, string, error) {
		work, pace := time.Second, timing.Plan{Rounds: 6, Budget: 60 * time.Second, Enough: timing.Settled(timing.Quotient, raceLimit)}
		if r.Quick {
			work, pace = 400*time.Millisecond, timing.Plan{Rounds: 1}
		}
		script, err := p.busy(ctx, work)
		if err != nil {
			return 0, "", err
		}
		const all = `for i in $(seq "$2"); do sh -c "$1" & done; wait`
		n := strconv.Itoa(racing)
		m, err := timing.Medians(ctx, pace,
			p.timed("race", "race", "-q", "-n", n, "--", "sh", "-c", script),
			p.other("bare", "sh", "-c", all, "bare", script, n))
		if err != nil {
			return 0, "", err
		}
		return timing.Ratio(m[0], m[1]), fmt.Sprintf("race %s, bare %s", timing.Ms(m[0]), timing.Ms(m[1])), nil
	})
}

// makingToOne returns the measuring function of a check: the time until a race's first progress report, when
// all sandboxes exist and no command has started, relative to making one sandbox.
func (r *referee) makingToOne(s *setting) measure {
	return func(ctx context.Context) (float64, string, error) {
		dir, err := r.tree(ctx, *s, smallest)
		if err != nil {
			return 0, "", err
		}
		pace := r.many()
		pace.Enough = timing.Settled(timing.Quotient, makingLimit)
		m, err := timing.Medians(ctx, pace, r.making(s, dir, racing), r.making(s, dir, 1))
		if err != nil {
			return 0, "", err
		}
		return timing.Ratio(m[0], m[1]), fmt.Sprintf("%d in %s, one in %s", racing, timing.Ms(m[0]), timing.Ms(m[1])), nil
	}
}

func (r *referee) making(s *setting, dir string, n int) timing.Subject {
	do := func(ctx context.Context) (took time.Duration, err error) {
		req := race.Request{Request: hostfs.Request{Workspace: dir, Backend: s.Driver, Policy: policy()}}
		for range n {
			req.Attempts = append(req.Attempts, truth(dir))
		}
		began := time.Now()
		req.Progress = func(race.Attempt) {
			if took == 0 {
				took = time.Since(began)
			}
		}
		race, err := race.New(r.e).Race(ctx, req)
		if err != nil {
			return 0, err
		}
		return took, race.Close(ctx)
	}
	return timing.Subject{Name: fmt.Sprintf("making %d", n), Do: do}
}

// busy returns a shell script that uses one processor for the duration work. The attempts of a timed race run
// it.
func (p *processes) busy(ctx context.Context, work time.Duration) (string, error) {
	const first = 200_000
	loop := func(n int) string {
		return fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); done", n)
	}
	m, err := timing.Medians(ctx, timing.Plan{Rounds: 3}, p.other("loop", "sh", "-c", loop(first)))
	if err = errors.Join(err, p.err); err != nil {
		return "", err
	}
	return loop(int(first * float64(work) / float64(m[0]))), nil
}

func (r *referee) raceToRun(s *setting) measure {
	return r.inTree(s, func(ctx context.Context, p *processes) (float64, string, error) {
		pace := r.many()
		pace.Rounds = min(pace.Rounds, 20)
		m, err := timing.Medians(ctx, pace,
			p.timed("race", "race", "-q", "-n", strconv.Itoa(racing), "--", "true"),
			p.timed("one", "race", "-q", "-n", "1", "--", "true"),
			p.timed("run", "run", "-q", "--", "true"))
		if err != nil {
			return 0, "", err
		}
		return timing.Ratio(m[0], m[2]), fmt.Sprintf("race of %d %s, of one %s, run %s", racing, timing.Ms(m[0]), timing.Ms(m[1]), timing.Ms(m[2])), nil
	})
}

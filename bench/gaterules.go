//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/bench/jobs"
	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/internal/undo"
)

// ruleChecks returns the checks of the cost of rules in [tools] and [data]: at the start of a sandbox, and while it
// runs.
func (r *referee) ruleChecks() []check {
	return []check{
		{
			name: "an execution inside with [tools], to one without", limit: 1.05, held: 1.3, unit: "×",
			measure: r.ruled(jobs.Executions, func(l *lab, _ string, p *catalog.Policy) {
				p.Tools = &catalog.Tools{Allow: []string{"/usr/bin/true", l.Self}}
			}, ratio),
		},
		{
			name: "an opening for reading inside with readable, beyond one without", limit: 20, held: 60, unit: "µs",
			measure: r.ruled(jobs.Openings, func(l *lab, dir string, p *catalog.Policy) {
				p.Data = &catalog.Data{Readable: []string{dir, l.Self}}
			}, added),
		},
		{
			name: "processor time of `snapfs run -- true` with a rule of [tools] by path, beyond one without", limit: 1, held: 3, unit: "ms",
			measure: r.inTree(&r.overlay, r.ruledStart("[tools]\nallow = [\"/usr/bin/true\"]\n")),
		},
		{
			name: "processor time of `snapfs run -- true` with all kinds of rules, beyond one without", limit: 1, held: 8, unit: "ms",
			measure: r.inTree(&r.overlay, r.ruledStart(`[tools]
allow = ["dpkg:coreutils", "dpkg:git", "/usr/bin/true"]
deny = ["/usr/bin/perl"]
[data]
readable = ["."]
writable = ["."]
recorded = ["absent"]
secret = ["absent"]
`)),
		},
	}
}

// ratio returns the value of a check: how many times as long a job takes with rules as without.
func ratio(with, without []time.Duration) float64 { return timing.Pairs(with, without) }

// added returns the value of a check: how many microseconds longer one opening of a file takes with rules, from the
// times of [jobs.Openings].
func added(with, without []time.Duration) float64 {
	each := (timing.Median(with) - timing.Median(without)) / jobs.Opened
	return float64(each) / float64(time.Microsecond)
}

// ruled returns the measuring function of a check. It runs a job in turns in two sandboxes of one workspace; limit
// sets the rules in the policy of one of them. value makes the value of the check from the times of both.
func (r *referee) ruled(job string, limit func(*lab, string, *catalog.Policy), value func(with, without []time.Duration) float64) measure {
	return func(ctx context.Context) (float64, string, error) {
		b, err := r.ruledBout(ctx, limit)
		if err != nil {
			return 0, "", err
		}
		pace := timing.Plan{Rounds: 40, Warm: 3, Budget: 12 * time.Second}
		if r.Quick {
			pace = timing.Plan{Rounds: 3, Warm: 1}
		}
		without, with, err := b.compete(ctx, jobs.Job{Name: job}, pace)
		b.back.UndoInto(&err)
		if err = errors.Join(err, without.Err, with.Err); err != nil {
			return 0, "", err
		}
		return value(with.Took, without.Took), fmt.Sprintf("with %s, without %s, %d pairs", timing.Ms(timing.Median(with.Took)), timing.Ms(timing.Median(without.Took)), len(with.Took)), nil
	}
}

// ruledBout starts a worker in each of two sandboxes of the workspace of [referee.bout]. limit sets rules in the policy
// of one of them. b.back stops the workers and removes the sandboxes.
func (r *referee) ruledBout(ctx context.Context, limit func(*lab, string, *catalog.Policy)) (_ *bout, err error) {
	b, dir := &bout{}, workOf(r.overlay)
	if _, err := r.bout(ctx, r.overlay); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.back.UndoInto(&err)
		}
	}()
	ruled := policy()
	limit(r.lab, dir, &ruled)
	for name, p := range map[string]catalog.Policy{"plain": policy(), "ruled": ruled} {
		if _, err := r.e.New(ctx, hostfs.Request{Name: name, Workspace: dir, Backend: r.overlay.Driver, Policy: p}); err != nil {
			return nil, err
		}
		b.back.Push("remove the sandbox", func() error { return r.e.Remove(context.WithoutCancel(ctx), name) })
	}
	return b, r.bothInside(ctx, b, dir)
}

// bothInside starts the workers of b in the sandboxes plain and ruled of the workspace dir.
func (r *referee) bothInside(ctx context.Context, b *bout, dir string) (err error) {
	for name, w := range map[string]**worker{"plain": &b.bare, "ruled": &b.inside} {
		if *w, err = r.within(ctx, r.e, name, dir); err != nil {
			return err
		}
		b.back.Push("end the worker", (*w).close)
	}
	return nil
}

// ruledStart returns a function that measures by how many milliseconds of processor time `snapfs run` with these rules
// in its profile exceeds one with an empty profile.
func (r *referee) ruledStart(rules string) func(context.Context, *processes) (float64, string, error) {
	return func(ctx context.Context, p *processes) (float64, string, error) {
		var files undo.Stack
		run := func(name, text string) timing.Subject {
			file := filepath.Join(p.dir, name+".toml")
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				return timing.Subject{Name: name, Do: func(context.Context) (time.Duration, error) { return 0, err }}
			}
			files.Push("remove the profile", func() error { return os.Remove(file) })
			return inProcessorTime(p.timed(name, "run", "--profile", file, "--", "true"))
		}
		m, err := timing.Medians(ctx, r.many(), run("ruled", rules), run("plain", ""))
		if files.UndoInto(&err); err != nil {
			return 0, "", err
		}
		return float64(m[0]-m[1]) / float64(time.Millisecond), fmt.Sprintf("with %s, without %s", timing.Ms(m[0]), timing.Ms(m[1])), nil
	}
}

// inProcessorTime returns the operation s, which starts a process and waits for its end, with its processor time in
// place of its duration.
func inProcessorTime(s timing.Subject) timing.Subject {
	do := s.Do
	s.Do = func(ctx context.Context) (time.Duration, error) {
		before := timing.Processor(unix.RUSAGE_CHILDREN)
		_, err := do(ctx)
		return timing.Processor(unix.RUSAGE_CHILDREN) - before, err
	}
	return s
}

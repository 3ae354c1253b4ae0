//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine"
)

// tries is how often a promise is measured before it counts as broken. The smallest value decides, because
// other work on the machine makes a program slower, never faster.
const tries = 3

// A check measures the value of a performance promise; [judge] compares the value with the promise's limit.
type check struct {
	name  string
	limit float64
	// held is the regression bound of a promise that is not yet reached, or 0. Between limit
	// and held the promise is reported as missed; above held the gate fails.
	held float64
	unit string
	// noise is a text for the report: how much of limit is tolerance for noise of the machine.
	noise string
	// unjudged is set for a value without a promise: it is measured once and only reported.
	unjudged bool
	// exact is set for a count, which noise cannot change: it is measured once.
	exact   bool
	measure func(ctx context.Context) (value float64, detail string, err error)
}

// judge measures the value of a check (of one performance promise) up to three times, until the value is
// within the promise's limit or its regression bound held. It returns the promise with the smallest value,
// which says whether the promise holds.
func judge(ctx context.Context, c check) Promise {
	p := Promise{Name: c.name, Limit: c.limit, Held: c.held, Unit: c.unit, Noise: c.noise, Told: c.unjudged}
	began, found := time.Now(), false
	var lost error // of the last try that failed
	for p.Tries < tries && !p.Holds && !(found && p.missed()) && (p.Tries == 0 || !c.unjudged && !c.exact) && ctx.Err() == nil {
		p.Tries++
		value, detail, err := c.measure(ctx)
		if err != nil {
			lost = err
			if !found {
				p.Error = err.Error()
			}
			continue
		}
		if !found || value < p.Measured {
			p.Measured, p.Detail = value, detail
		}
		found, p.Error = true, ""
		p.Holds = !c.unjudged && p.Measured <= c.limit
	}
	if p.Took = time.Since(began); found && lost != nil {
		p.Detail += "; a try ended with: " + lost.Error()
	}
	return p
}

// String returns a performance promise, its measured value and whether it holds as a line of text.
func (p Promise) String() string {
	verdict := "broken"
	switch {
	case p.Told:
		verdict = "reported"
	case p.Holds:
		verdict = "holds"
	case p.missed():
		verdict = "missed"
	}
	s := fmt.Sprintf("%-6s  %s: %.3g %s", verdict, p.Name, p.Measured, p.Unit)
	if p.Error != "" {
		s = fmt.Sprintf("%-6s  %s: %s", verdict, p.Name, p.Error)
	}
	if !p.Told {
		s += fmt.Sprintf(", limit %.4g", p.Limit)
	}
	if p.Held > p.Limit {
		s += fmt.Sprintf(", gate: %.4g", p.Held)
	}
	if p.Noise != "" {
		s += " (" + p.Noise + ")"
	}
	if p.Tries > 1 {
		s += fmt.Sprintf(", the least of %d tries", p.Tries)
	}
	if p.Detail != "" {
		s += "; " + p.Detail
	}
	return s
}

// A referee runs the checks of [Gate]. It holds the trees, engines, settings and workers that
// the checks share.
type referee struct {
	*lab
	overlay, btrfsRoot setting
	e                  *engine.Engine
	trees              map[string]string
	before             map[string]census
	bouts              map[string]*bout
}

// gate measures every performance promise, each by a check of [Gate], and returns the promises with their
// measured values.
func (l *lab) gate(ctx context.Context) (promises []Promise, err error) {
	r := &referee{lab: l, trees: map[string]string{}, before: map[string]census{}, bouts: map[string]*bout{}}
	all := l.settings()
	r.overlay = all[0]
	if l.btrfs != "" {
		r.btrfsRoot = all[2]
	} else {
		r.btrfsRoot = setting{Name: "btrfs", Error: l.noBtrfs.Error()}
	}
	if r.e, err = l.open(ctx, r.overlay.State); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.closeBouts()) }()
	topics := []func() []check{
		r.startChecks, r.stateChecks, r.growthChecks, r.crowdChecks, r.workChecks, r.driftChecks, r.raceChecks, r.bombChecks, r.planChecks, r.promoteChecks, r.recordChecks, r.proxyChecks, r.pointChecks, r.boundChecks,
	}
	if len(l.Only) > 0 {
		topics = nil
		if l.wants(kindGrowth) {
			topics = append(topics, r.growthChecks)
		}
		if l.wants(kindDepth) {
			topics = append(topics, r.depthChecks)
		}
		if l.wants(kindRecord) {
			topics = append(topics, r.recordChecks, r.pointChecks)
		}
		if l.wants(kindRules) {
			topics = append(topics, r.ruleChecks)
		}
		if l.wants(kindProxy) {
			topics = append(topics, r.proxyChecks)
		}
	}
	for _, topic := range topics {
		for _, c := range topic() {
			l.Say(c.name)
			p := judge(ctx, c)
			if ctx.Err() != nil {
				return promises, ctx.Err()
			}
			promises = append(promises, p)
			l.Say(fmt.Sprintf("%s (%.0f s)", p, p.Took.Seconds()))
		}
		if err := r.closeBouts(); err != nil {
			return promises, err
		}
	}
	return promises, nil
}

// tree returns the path of the tree with this many files for the setting s; the first call makes the tree.
func (r *referee) tree(ctx context.Context, s setting, files int) (string, error) {
	if s.Error != "" {
		return "", fmt.Errorf("%s: %s", s.Name, s.Error)
	}
	key := fmt.Sprint(s.Name, files)
	if dir := r.trees[key]; dir != "" {
		return dir, nil
	}
	dir, err := r.plant(ctx, s, files)
	if err == nil {
		r.trees[key] = dir
	}
	return dir, err
}

// largest returns the number of files in the larger of the two trees between which checks compare the times
// of commands. The smaller one has smallest files.
func (r *referee) largest() int {
	if r.Quick {
		return 10_000
	}
	if r.Full {
		return 1_000_000
	}
	return 100_000
}

const smallest = 1_000

// A measure is a function that measures the value of one performance promise, and describes in detail from
// which times the value is computed.
type measure = func(context.Context) (value float64, detail string, err error)

// inTree returns the measuring function of a check: it calls do to time processes in the smallest tree of the
// setting s, and closes p afterwards.
func (r *referee) inTree(s *setting, do func(ctx context.Context, p *processes) (float64, string, error)) measure {
	return func(ctx context.Context) (float64, string, error) {
		dir, err := r.tree(ctx, *s, smallest)
		if err != nil {
			return 0, "", err
		}
		p := r.at(*s, dir)
		defer p.close()
		value, detail, err := do(ctx, p)
		return value, detail, errors.Join(err, p.err)
	}
}

// inSandbox returns the measuring function of a check: it makes a sandbox of a tree with this many files and
// calls do with the sandbox's name, to time processes on it. It closes p afterwards and removes the sandbox.
func (r *referee) inSandbox(s *setting, files int, do func(ctx context.Context, name string, p *processes) (float64, string, error)) measure {
	return func(ctx context.Context) (value float64, detail string, err error) {
		err = r.with(ctx, *s, files, func(name, dir string) error {
			p := r.at(*s, dir)
			defer p.close()
			var err error
			value, detail, err = do(ctx, name, p)
			return errors.Join(err, p.err)
		})
		return value, detail, err
	}
}

// many returns how many rounds a check times a process that takes a few milliseconds: many, because such
// short times vary.
func (r *referee) many() timing.Plan {
	if r.Quick {
		return timing.Plan{Rounds: 10, Warm: 2}
	}
	return timing.Plan{Rounds: 60, Warm: 5, Budget: 10 * time.Second}
}

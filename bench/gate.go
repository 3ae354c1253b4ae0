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

// tries bounds the measurements of a promise before it counts as broken; the smallest value
// counts. Other work on the machine makes a program slower, not faster.
const tries = 3

// check is the measurement behind one promise.
type check struct {
	name  string
	limit float64
	// held is the bound of an open promise if it is more than limit: missing the promise is
	// reported, and the gate fails only above held.
	held float64
	unit string
	// noise describes the tolerance that limit includes.
	noise string
	// unjudged: there is no promise; the value is measured once and only reported.
	unjudged bool
	// exact: noise cannot change the value; it is measured once.
	exact   bool
	measure func(ctx context.Context) (value float64, detail string, err error)
}

// judge measures until the promise holds or is within held, at most three times.
func judge(ctx context.Context, c check) Promise {
	p := Promise{Name: c.name, Limit: c.limit, Held: c.held, Unit: c.unit, Noise: c.noise, Told: c.unjudged}
	began, found := time.Now(), false
	for p.Tries < tries && !p.Holds && !(found && p.missed()) && (p.Tries == 0 || !c.unjudged && !c.exact) && ctx.Err() == nil {
		p.Tries++
		value, detail, err := c.measure(ctx)
		if err != nil {
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
	p.Took = time.Since(began)
	return p
}

// String is a line for people.
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

// referee holds the trees, engines and settings that the checks share.
type referee struct {
	*lab
	overlay, btrfsRoot setting
	e                  *engine.Engine
	trees              map[string]string
	before             map[string]census
	bouts              map[string]*bout
}

// gate judges every promise.
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
		r.startChecks, r.stateChecks, r.crowdChecks, r.insideChecks, r.driftChecks, r.raceChecks, r.bombChecks, r.planChecks, r.promoteChecks, r.boundChecks,
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

// tree makes a tree the first time it is asked for.
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

// largest and smallest are the trees that must take the same time.
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

// many is for whole processes of a few milliseconds.
func (r *referee) many() timing.Plan {
	if r.Quick {
		return timing.Plan{Rounds: 10, Warm: 2}
	}
	return timing.Plan{Rounds: 60, Warm: 5, Budget: 10 * time.Second}
}

// medians measures subjects in turn and answers with the median of each.
func medians(ctx context.Context, p timing.Plan, subjects ...timing.Subject) ([]time.Duration, error) {
	samples, err := timing.Interleave(ctx, p, subjects...)
	if err != nil {
		return nil, err
	}
	var list []time.Duration
	for _, s := range samples {
		if s.Err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, s.Err)
		}
		list = append(list, timing.Median(s.Took))
	}
	return list, nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

func over(a, b time.Duration) float64 { return float64(a) / float64(b) }

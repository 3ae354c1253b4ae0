//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/snapfs/snapfs/bench/jobs"
	"github.com/snapfs/snapfs/bench/timing"
)

// Work in a sandbox may take insideLimit times as long as on the bare tree; insideHeld is the regression bound.
const insideLimit, insideHeld = 1.03, 2

// insideChecks returns the checks of how much slower work is inside a sandbox than on the bare tree.
func (r *referee) insideChecks() []check {
	var list []check
	for _, s := range []*setting{&r.overlay, &r.btrfsRoot} {
		for _, j := range jobs.AmountsOf(r.Quick).Jobs()[:2] {
			name := strings.SplitN(s.Name, ",", 2)[0]
			list = append(list, check{name: j.Name + " inside, on " + name + ", to the bare tree", limit: insideLimit, held: insideHeld, unit: "×", measure: r.job(s, j)})
		}
	}
	return list
}

func (r *referee) job(s *setting, j jobs.Job) measure {
	return func(ctx context.Context) (value float64, detail string, err error) {
		if s.Error != "" {
			return 0, "", errors.New(s.Error)
		}
		b, err := r.bout(ctx, *s)
		if err != nil {
			return 0, "", err
		}
		pace := timing.Plan{Rounds: 25, Warm: 3, Budget: 12 * time.Second, Enough: settledInside}
		if r.Quick {
			pace = timing.Plan{Rounds: 3, Warm: 1}
		}
		bare, in, err := b.compete(ctx, j, pace)
		if err = errors.Join(err, bare.Err, in.Err); err != nil {
			return 0, "", err
		}
		detail = fmt.Sprintf("inside %s, bare %s, %d pairs", timing.Ms(timing.Median(in.Took)), timing.Ms(timing.Median(bare.Took)), len(in.Took))
		return timing.Pairs(in.Took, bare.Took), detail, nil
	}
}

// settledInside reports whether the rounds of [bout.compete] so far decide whether the limit and the bound hold.
func settledInside(samples []timing.Sample) bool {
	return timing.Settled(func(bare, inside time.Duration) float64 { return timing.Quotient(inside, bare) }, insideLimit, insideHeld)(samples)
}

// bout returns two worker processes of the setting s that run the same timed jobs, one of them in a sandbox.
// The first call starts them.
func (r *referee) bout(ctx context.Context, s setting) (*bout, error) {
	if b := r.bouts[s.Name]; b != nil {
		return b, nil
	}
	b, err := r.openBout(ctx, s)
	if err == nil {
		r.bouts[s.Name] = b
	}
	return b, err
}

func (r *referee) closeBouts() (err error) {
	for _, b := range r.bouts {
		b.back.UndoInto(&err)
	}
	clear(r.bouts)
	return err
}

// workChecks returns the checks that run jobs in the workspace of [referee.bout], one after another, so that it is
// filled only once.
func (r *referee) workChecks() []check { return append(r.insideChecks(), r.ruleChecks()...) }

// boundChecks returns a check for each setting (backend, user, filesystem): even the slowest single run of
// any operation of snapfs must stay below a bound.
func (r *referee) boundChecks() []check {
	var list []check
	for _, s := range r.settings() {
		files := r.largest()
		if s.Largest > 0 {
			files = smallest // it copies every file: no time holds at every size
		}
		list = append(list, check{
			name:  fmt.Sprintf("the slowest case on %s, %d files", s.Name, files),
			limit: 2, held: 6, unit: "s", measure: r.slowest(s, files),
		})
	}
	return list
}

// slowest returns the measuring function of a check: it times every operation of snapfs three times, in a
// tree with this many files. Its value is the longest single time, in seconds.
func (r *referee) slowest(s setting, files int) measure {
	return func(ctx context.Context) (float64, string, error) {
		if s.Error != "" {
			return 0, "", errors.New(s.Error)
		}
		l := *r.lab
		l.Sizes, l.Rounds, l.Only = []int{files}, 3, []string{"latency"}
		results, err := l.measureSetting(ctx, s)
		if err != nil {
			return 0, "", err
		}
		var worst Result
		for _, found := range results {
			if found.Error != "" {
				return 0, "", fmt.Errorf("%s: %s", found.What, found.Error)
			}
			if found.Max > worst.Max {
				worst = found
			}
		}
		if worst.N == 0 {
			return 0, "", errors.New("nothing was measured")
		}
		return worst.Max.Seconds(), fmt.Sprintf("it is %s, %s", worst.What, cleanliness(worst.Dirty)), nil
	}
}

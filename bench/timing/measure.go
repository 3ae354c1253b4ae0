//go:build linux

package timing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Subject is one operation to time, Do. Before and After are not timed, and may be nil.
type Subject struct {
	Name   string
	Before func(ctx context.Context) error
	Do     func(ctx context.Context) (time.Duration, error)
	After  func(ctx context.Context) error
}

// Timing makes of f a function for [Subject]: it calls f and returns how long the call took.
func Timing(f func(ctx context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		err := f(ctx)
		return time.Since(began), err
	}
}

// once runs the operation one time, with its Before and After, and returns how long the operation itself
// took.
func (s Subject) once(ctx context.Context) (took time.Duration, err error) {
	if s.Before != nil {
		if err := s.Before(ctx); err != nil {
			return 0, err
		}
	}
	took, err = s.Do(ctx)
	if err == nil && s.After != nil {
		err = s.After(ctx)
	}
	return took, err
}

// A Sample holds the times of all runs of one operation, or the error that stopped its measurement.
type Sample struct {
	Name string
	Took []time.Duration
	Err  error
}

// A Plan sets how often a measurement repeats its operations. Warm is the number of rounds before those that
// count.
type Plan struct {
	Rounds, Warm int
	// Budget ends the rounds after this time, but not before the third round.
	Budget time.Duration
	// Enough, if not nil, ends the rounds as soon as it returns true for those so far. [Settled] returns such a function.
	Enough func([]Sample) bool
}

// Interleave times the operations in turns: each runs once a round, and the one that goes first rotates. An
// operation that fails is left out of later rounds, and its sample holds the error. Interleave returns an
// error only when ctx ends.
func Interleave(ctx context.Context, p Plan, subjects ...Subject) ([]Sample, error) {
	samples := make([]Sample, len(subjects))
	for i, s := range subjects {
		samples[i].Name = s.Name
	}
	const least = 3
	began := time.Now()
	for round := range p.Warm + p.Rounds {
		if round >= p.Warm+least && p.Budget > 0 && time.Since(began) > p.Budget {
			break
		}
		for k := range subjects {
			i := (round + k) % len(subjects)
			if samples[i].Err != nil {
				continue
			}
			took, err := subjects[i].once(ctx)
			if ctx.Err() != nil {
				return samples, ctx.Err()
			}
			if samples[i].Err = err; err == nil && round >= p.Warm {
				samples[i].Took = append(samples[i].Took, took)
			}
		}
		if round >= p.Warm && p.Enough != nil && p.Enough(samples) {
			break
		}
	}
	return samples, nil
}

// Medians times several operations in turns, in rounds as p says, and returns the median time of each, in the
// order of subjects.
func Medians(ctx context.Context, p Plan, subjects ...Subject) ([]time.Duration, error) {
	samples, err := Interleave(ctx, p, subjects...)
	if err != nil {
		return nil, err
	}
	var list []time.Duration
	for _, s := range samples {
		if s.Err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, s.Err)
		}
		list = append(list, Median(s.Took))
	}
	return list, nil
}

// Together calls f n times, at most atOnce calls at a time, to measure many operations at once. It returns
// how long call i took as each[i], and the time from the first start to the last end as total.
func Together(ctx context.Context, n, atOnce int, f func(ctx context.Context, i int) error) (each []time.Duration, total time.Duration, err error) {
	each = make([]time.Duration, n)
	errs := make([]error, n)
	gate := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range n {
		gate <- struct{}{}
		wg.Go(func() {
			began := time.Now()
			errs[i] = f(ctx, i)
			each[i] = time.Since(began)
			<-gate
		})
	}
	wg.Wait()
	return each, time.Since(began), errors.Join(errs...)
}

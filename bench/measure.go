//go:build linux

package bench

import (
	"context"
	"time"
)

// A subject is one thing to be timed. before and after are not timed, and may
// be nil.
type subject struct {
	name   string
	before func(ctx context.Context) error
	do     func(ctx context.Context) (time.Duration, error)
	after  func(ctx context.Context) error
}

// timing times a call.
func timing(f func(ctx context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		err := f(ctx)
		return time.Since(began), err
	}
}

// once times the subject one time.
func (s subject) once(ctx context.Context) (took time.Duration, err error) {
	if s.before != nil {
		if err := s.before(ctx); err != nil {
			return 0, err
		}
	}
	took, err = s.do(ctx)
	if err == nil && s.after != nil {
		err = s.after(ctx)
	}
	return took, err
}

// A sample is the times of one subject, or the error that it ended with.
type sample struct {
	name string
	took []time.Duration
	err  error
}

// A plan is how often to measure.
type plan struct {
	rounds, warm int
	// budget ends the rounds early, but not before there are three.
	budget time.Duration
}

// interleave measures subjects in turn, round by round, each round beginning
// with the next of them. A subject that fails is left out from then on; only
// the end of ctx is an error.
func interleave(ctx context.Context, p plan, subjects ...subject) ([]sample, error) {
	samples := make([]sample, len(subjects))
	for i, s := range subjects {
		samples[i].name = s.name
	}
	const least = 3
	began := time.Now()
	for round := range p.warm + p.rounds {
		if round >= p.warm+least && p.budget > 0 && time.Since(began) > p.budget {
			break
		}
		for k := range subjects {
			i := (round + k) % len(subjects)
			if samples[i].err != nil {
				continue
			}
			took, err := subjects[i].once(ctx)
			if ctx.Err() != nil {
				return samples, ctx.Err()
			}
			if samples[i].err = err; err == nil && round >= p.warm {
				samples[i].took = append(samples[i].took, took)
			}
		}
	}
	return samples, nil
}

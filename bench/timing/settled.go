//go:build linux

package timing

import (
	"math"
	"time"
)

// Settled returns a function for [Plan]. It reports whether the rounds so far decide on which side of each of bounds
// the mean of a value lies: the confidence interval of the mean holds none of bounds. value makes the value of one
// round from the times of the two operations in it, as [Quotient] does. Rounds that vary as much as the distance to
// the nearest bound settle nothing, so that the measurement takes all of its rounds.
func Settled(value func(a, b time.Duration) float64, bounds ...float64) func([]Sample) bool {
	return func(samples []Sample) bool {
		a, b := samples[0].Took, samples[1].Took
		n := min(len(a), len(b))
		if n < leastSettled {
			return false
		}
		var values []float64
		for i := range n {
			values = append(values, value(a[i], b[i]))
		}
		mean, half := interval(values)
		for _, bound := range bounds {
			if math.Abs(mean-bound) <= half {
				return false
			}
		}
		return true
	}
}

// Quotient returns a/b, as a value for [Settled].
func Quotient(a, b time.Duration) float64 { return float64(a) / float64(b) }

// leastSettled is the smallest number of rounds that can decide.
const leastSettled = 4

// interval returns the mean of at least leastSettled values and half the width of its confidence interval by Student's
// t-distribution. The interval is wider than usual, 99.8 percent, because the measurement looks at it after each round.
func interval(values []float64) (mean, half float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	var squares float64
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	// The quantile 0.999 for 3 degrees of freedom and more; that of the last serves for all larger numbers too.
	quantiles := []float64{10.21, 7.17, 5.89, 5.21, 4.79, 4.50, 4.30, 4.14, 4.02, 3.93, 3.85, 3.79, 3.73, 3.69, 3.65, 3.61, 3.58}
	q := quantiles[min(len(values)-leastSettled, len(quantiles)-1)]
	return mean, q * math.Sqrt(squares/(n-1)/n)
}

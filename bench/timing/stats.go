//go:build linux

package timing

import (
	"fmt"
	"slices"
	"time"
)

// A Summary describes how the times of one repeated operation are distributed, in nanoseconds.
type Summary struct {
	N   int           `json:"n"`
	Min time.Duration `json:"min_ns"`
	P50 time.Duration `json:"p50_ns"`
	P95 time.Duration `json:"p95_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
}

// Summarise returns the summary of a list of times, or the zero Summary for none.
func Summarise(took []time.Duration) Summary {
	if len(took) == 0 {
		return Summary{}
	}
	s := slices.Sorted(slices.Values(took))
	return Summary{N: len(s), Min: s[0], P50: quantile(s, 50), P95: quantile(s, 95), P99: quantile(s, 99), Max: s[len(s)-1]}
}

// quantile returns a percentile of the sorted times by nearest rank: the smallest time that at least percent
// percent of all times do not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}

// Median returns the median of a list of times, 0 of an empty one.
func Median(took []time.Duration) time.Duration { return Summarise(took).P50 }

// Pairs returns the median of the ratios a[i]/b[i]. The two times of a pair are measured right after each
// other, so that a slow moment of the machine affects both.
func Pairs(a, b []time.Duration) float64 {
	var r []float64
	for i := range min(len(a), len(b)) {
		r = append(r, float64(a[i])/float64(b[i]))
	}
	if len(r) == 0 {
		return 0
	}
	slices.Sort(r)
	return r[(len(r)-1)/2]
}

// Short formats a time with three significant digits, for a cell of a table in BENCHMARKS.md.
func Short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}

// Ms formats a time in milliseconds, so that the times of one sentence have one unit.
func Ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

// Ratio returns how many times as long as b the time a is.
func Ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

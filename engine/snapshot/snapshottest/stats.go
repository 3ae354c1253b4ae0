//go:build linux

package snapshottest

import (
	"slices"
	"time"
)

// quantile is the time that percent of all stay within.
func quantile(took []time.Duration, percent int) time.Duration {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

//go:build linux

package snapshottest

import (
	"slices"
	"time"
)

// quantile returns the duration that percent of all do not exceed.
func quantile(took []time.Duration, percent int) time.Duration {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

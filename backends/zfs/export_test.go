//go:build linux

package zfs

import "testing"

// WithoutKernel makes the backend use zfs(8) in place of kernel calls until the end of the test.
func WithoutKernel(t testing.TB) {
	was := moduleVersion
	moduleVersion = "/nowhere"
	t.Cleanup(func() { moduleVersion = was })
}

// WouldFree returns what the destruction of snapshots would free, as [Backend.MeasureExclusive] uses it.
var WouldFree = wouldFree

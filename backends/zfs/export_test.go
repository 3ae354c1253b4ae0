//go:build linux

package zfs

import "testing"

// WithoutKernel has zfs(8) do what the kernel is asked for directly, until the end of the test.
func WithoutKernel(t testing.TB) {
	was := moduleVersion
	moduleVersion = "/nowhere"
	t.Cleanup(func() { moduleVersion = was })
}

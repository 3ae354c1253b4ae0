//go:build linux

package treetest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorTime returns the time that this process has used on processors so far, the kernel's work for it
// included. A test measures with it what other processes of the machine do not change.
func ProcessorTime(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

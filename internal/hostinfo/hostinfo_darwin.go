package hostinfo

import (
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Uptime is how long this machine has run since it was booted, the time that it
// was asleep included (CLOCK_MONOTONIC, clock_gettime(3)).
func Uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// Synchronised reports whether something keeps the clock of the wall right, which
// the system does not tell: nothing does.
func Synchronised() bool { return false }

// Memory is how many bytes this machine has. How many of them could be had now is
// not asked: 0.
func Memory() (total, available int64, err error) {
	n, err := unix.SysctlUint64("hw.memsize")
	return int64(n), 0, err
}

// UnusedMemory is how many bytes nothing is in: not known here.
func UnusedMemory() (int64, error) { return 0, vfs.ErrNeedsLinux }

// Pressure is how much tasks waited for "cpu", "memory" or "io": not told here.
func Pressure(string) (some, full float64, ok bool) { return 0, 0, false }

// Unwritten is how many bytes wait to be written to their disks: not told here.
func Unwritten() int64 { return 0 }

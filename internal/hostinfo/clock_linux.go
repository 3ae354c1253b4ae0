package hostinfo

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime returns the time since boot, including suspension (CLOCK_BOOTTIME of clock_gettime(2); on macOS
// CLOCK_MONOTONIC). Nobody can set this clock, so it never jumps while the boot ID stays the same.
func Uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0 // every kernel since 2.6.39 has it
	}
	return time.Duration(ts.Nano())
}

// Synchronised reports whether a time service has set the wall clock in this boot, and nobody
// has set it by hand since (STA_UNSYNC, adjtimex(2)). It returns false if the system does not
// report that.
func Synchronised() bool {
	var t unix.Timex
	_, err := unix.Adjtimex(&t)
	return err == nil && t.Status&unix.STA_UNSYNC == 0
}

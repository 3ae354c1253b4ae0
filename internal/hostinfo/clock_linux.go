package hostinfo

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is how long this machine has run since it was booted, the time that it
// was suspended included (CLOCK_BOOTTIME, clock_gettime(2)). Nobody sets this
// clock, so it goes on evenly while [BootID] stays the same.
func Uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0 // every kernel since 2.6.39 has it
	}
	return time.Duration(ts.Nano())
}

// Synchronised reports whether something keeps the clock of the wall right (STA_UNSYNC,
// adjtimex(2)): a service of time has set it in this boot, and nobody has set it by hand since.
// Where the kernel does not tell, nothing does.
func Synchronised() bool {
	var t unix.Timex
	_, err := unix.Adjtimex(&t)
	return err == nil && t.Status&unix.STA_UNSYNC == 0
}

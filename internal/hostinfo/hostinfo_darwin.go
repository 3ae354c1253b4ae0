package hostinfo

import (
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Uptime returns the time since boot, including suspension (CLOCK_BOOTTIME of clock_gettime(2); on macOS
// CLOCK_MONOTONIC). Nobody can set this clock, so it never jumps while the boot ID stays the same.
func Uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// Synchronised reports whether a time service has set the wall clock in this boot, and nobody
// has set it by hand since (STA_UNSYNC, adjtimex(2)). It returns false if the system does not
// report that.
func Synchronised() bool { return false }

// Memory returns the size of this machine's memory in bytes, and the bytes that programs can still get
// without swapping (MemAvailable, proc_meminfo(5); 0 on macOS). Cost: 50 µs.
func Memory() (total, available int64, err error) {
	n, err := unix.SysctlUint64("hw.memsize")
	return int64(n), 0, err
}

// UnusedMemory returns the bytes of this machine's memory that hold nothing, not even page cache: much less
// than programs can get. Cost: one system call.
func UnusedMemory() (int64, error) { return 0, vfs.ErrNeedsLinux }

// Pressure returns the percentages of the last ten seconds in which some tasks, and all busy
// tasks, waited for "cpu", "memory" or "io" (Documentation/accounting/psi.rst). ok is false if
// the kernel does not report it: before Linux 4.20, with psi=0, and on macOS. Cost: 20 µs.
func Pressure(string) (some, full float64, ok bool) { return 0, 0, false }

// Unwritten returns the number of bytes, on all filesystems, that wait to be written to disk. They bound the
// time that a sync can take. It returns 0 if the system does not report the number. Cost: 50 µs.
func Unwritten() int64 { return 0 }

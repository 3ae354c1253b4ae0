package hostinfo

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory returns the size of this machine's memory in bytes, and the bytes that programs can still get
// without swapping (MemAvailable, proc_meminfo(5); 0 on macOS). Cost: 50 µs.
func Memory() (total, available int64, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		to := &total
		switch name {
		case "MemTotal":
		case "MemAvailable":
			to = &available
		default:
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, 0, &os.PathError{Op: "reading", Path: "/proc/meminfo", Err: err}
		}
		*to = kib << 10
	}
	return total, available, nil
}

// UnusedMemory returns the bytes of this machine's memory that hold nothing, not even page cache: much less
// than programs can get. Cost: one system call.
func UnusedMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, os.NewSyscallError("sysinfo", err)
	}
	return int64(info.Freeram) * int64(info.Unit), nil
}

// Pressure returns the percentages of the last ten seconds in which some tasks, and all busy
// tasks, waited for "cpu", "memory" or "io" (Documentation/accounting/psi.rst). ok is false if
// the kernel does not report it: before Linux 4.20, with psi=0, and on macOS. Cost: 20 µs.
func Pressure(of string) (some, full float64, ok bool) {
	text, err := os.ReadFile("/proc/pressure/" + of)
	if err != nil {
		return 0, 0, false
	}
	for line := range strings.Lines(string(text)) {
		kind, rest, _ := strings.Cut(line, " avg10=")
		share, _, _ := strings.Cut(rest, " ")
		value, err := strconv.ParseFloat(share, 64)
		if err != nil {
			return 0, 0, false
		}
		switch kind {
		case "some":
			some, ok = value, true
		case "full":
			full = value
		}
	}
	return some, full, ok
}

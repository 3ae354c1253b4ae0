package hostinfo

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Unwritten returns the number of bytes, on all filesystems, that wait to be written to disk. They bound the
// time that a sync can take. It returns 0 if the system does not report the number. Cost: 50 µs.
func Unwritten() int64 {
	text, err := os.ReadFile("/proc/meminfo") // proc_meminfo(5)
	if err != nil {
		return 0
	}
	var sum int64
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(string(line), ":")
		if name != "Dirty" && name != "Writeback" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err == nil {
			sum += kib << 10
		}
	}
	return sum
}

package proc

import (
	"os"
	"sync"
)

// Process identifies a process for good: a pid alone is given out again.
type Process struct {
	// PID in the pid namespace of /proc, where the system has one.
	PID int
	// Start is when it started: on Linux in clock ticks since boot (field 22 of
	// /proc/PID/stat, proc(5)), on macOS in microseconds since 1970.
	Start uint64
	// Boot is the boot it belongs to, or "" where that does not matter.
	Boot string
}

// Self identifies this process. Cost: two small reads.
func Self() (Process, error) {
	p, err := Identify(os.Getpid())
	if err != nil {
		return p, err
	}
	p.Boot, err = BootID()
	return p, err
}

// ThisBoot is [BootID], looked up once: no process outlives its boot. "" where the
// system does not tell.
var ThisBoot = sync.OnceValue(func() string {
	id, err := BootID()
	if err != nil {
		return ""
	}
	return id
})

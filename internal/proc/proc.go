package proc

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// A Process identifies a process uniquely: a pid alone is reused after its process has ended. [Identify] and
// [Self] make it.
type Process struct {
	// PID is the pid, in the pid namespace of /proc where the system has those.
	PID int
	// Start is the start time of the process: on Linux in clock ticks since boot (field 22 of
	// /proc/PID/stat, proc(5)), on macOS in microseconds since 1970.
	Start uint64
	// Boot is the id of the boot in which the process runs, or "" where that does not matter.
	Boot string
}

// Self returns the identity of the calling process. Cost: a small read, and one more the first time.
func Self() (Process, error) {
	p, err := Identify(os.Getpid())
	if err != nil {
		return p, err
	}
	p.Boot, err = BootID()
	return p, err
}

// BootID returns the id that the kernel chose for this machine's present boot. It is read once, because no
// process outlives its boot.
var BootID = sync.OnceValues(bootID)

// Name returns a text that identifies this process, "PID-START", as a part of the names of files that it
// makes. With it, [NameRuns] finds files that a killed process left. START is 0 if the system does not report
// the start time.
var Name = sync.OnceValue(func() string {
	p, err := Identify(os.Getpid())
	if err != nil {
		p = Process{PID: os.Getpid()}
	}
	return strconv.Itoa(p.PID) + "-" + strconv.FormatUint(p.Start, 10)
})

// NameRuns reports whether a file's name begins with the [Name] of a process that may still run. More parts
// may follow, each after a hyphen.
func NameRuns(name string) bool {
	parts := append(strings.SplitN(name, "-", 3), "")
	pid, err1 := strconv.Atoi(parts[0])
	start, err2 := strconv.ParseUint(parts[1], 10, 64)
	return err1 == nil && err2 == nil && (start == 0 || Alive(Process{PID: pid, Start: start}))
}

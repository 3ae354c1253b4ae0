package limits

import (
	"context"
	"encoding/json"
	"time"
)

// Options are what a group has to know besides the limits.
type Options struct {
	// Devices are where the box reads and writes, as stat(2) numbers the devices
	// of its files; the rates hold for the whole disk behind each. A filesystem
	// whose number is not a disk's is an error; [DisksOf] finds its disks.
	Devices []uint64
	// BestEffort: a limit that this host cannot hold is left out, and
	// [Group.Level] says so. Otherwise it is an error.
	BestEffort bool
	// Count makes the group without any limit too: so that its use is counted, and
	// limits can be set later.
	Count bool
	// KillAll ends every process of the box, for where there is no control group
	// to do so. Nil: pid 1 is killed, and with it all of its pid namespace.
	KillAll func(context.Context) error
	// Pause stops all processes of the box and Resume lets them go on. Where there
	// is no control group, processors are limited by them, or not at all.
	// They are called by turns, from one goroutine.
	Pause, Resume func(context.Context) error

	// bare does without control groups, as on a host that gives none: for tests.
	bare bool
}

// By is what holds a limit.
type By string

// What holds a limit, the strongest first.
const (
	// ByCgroup2 and ByCgroup1: a control group of the kernel's, for all processes
	// together.
	ByCgroup2 By = "cgroup v2"
	ByCgroup1 By = "cgroup v1"
	// ByRlimit: a limit of the kernel's that each process has.
	ByRlimit By = "rlimit"
	// ByWatcher: this process looks, and acts when it sees too much. It holds as
	// long as this process lives.
	ByWatcher By = "watched"
	// ByNothing: the limit is not held ([Options.BestEffort]).
	ByNothing By = "nothing"
)

// Held says by what one limit is held.
type Held struct {
	Part Part
	// Value is the limit, as it is written: "512M".
	Value string
	By    By
	// Note is what a person ought to know of it, or "".
	Note string
	// Moot is a limit that is larger than what the host has: it limits nothing.
	Moot bool
}

// An Rlimit is a limit of each process, for setrlimit(2).
type Rlimit struct {
	Resource int
	Cur, Max uint64
}

// A Cause is a limit that was hit.
type Cause struct {
	Part Part
	// Value is the limit, as it is written: "2G".
	Value string
	// Text says what happened: "memory: 2 GiB used up".
	Text string
	// Change says what would let it pass.
	Change string
	// Killed: all processes of the box were killed for it.
	Killed bool
}

// A Known is a measured value, or none where this host does not measure it.
type Known[T any] struct {
	Value T
	OK    bool
}

// MarshalJSON writes null for what is not known.
func (k Known[T]) MarshalJSON() ([]byte, error) {
	if !k.OK {
		return []byte("null"), nil
	}
	return json.Marshal(k.Value)
}

// Usage is what the processes of a box use, all together. Sizes are in bytes.
type Usage struct {
	// Memory now and at most, what was swapped out and the cache of files
	// included where a control group counts.
	Memory, MemoryPeak Known[int64]
	// CPUTime is what they have computed; Throttled how long they were held back
	// by the limit of processors, each processor's time added up.
	CPUTime, Throttled Known[time.Duration]
	// PIDs are processes and threads, now and at most.
	PIDs, PIDsPeak Known[int64]
	// Read and Written, ReadOps and WriteOps are from and to all disks.
	Read, Written     Known[int64]
	ReadOps, WriteOps Known[int64]
	// How much of the last ten seconds they waited for a processor, for memory, for
	// a disk.
	PressureCPU, PressureMemory, PressureIO Known[Pressure]
}

// Pressure is a share of the time, in percent (Documentation/accounting/psi.rst).
type Pressure struct {
	// Some: at least one process waited. Full: all did.
	Some, Full float64
}

// A Ceiling is what the control groups that this process is in leave to it, and to
// what it starts. What no group bounds is not known.
type Ceiling struct {
	// Memory is the lowest limit, and MemoryLeft the least that is left of one, in
	// bytes: what is kept of files can be had.
	Memory, MemoryLeft Known[int64]
	CPUs               Known[float64]
}

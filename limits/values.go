package limits

import (
	"context"
	"encoding/json"
	"time"
)

// Options are the settings of a [Group] besides its limits. The caller of [Start] fills them.
type Options struct {
	// Devices are the devices of the container's files, as stat(2) numbers them; rates apply to the whole disk
	// of each. A device number that is not a disk's is an error; [DisksOf] finds the disks of such a
	// filesystem.
	Devices []uint64
	// BestEffort omits a limit that this host cannot enforce, and [Group.Level] reports it.
	// Otherwise such a limit is an error.
	BestEffort bool
	// Count creates the control groups even without limits, so that usage is measured and
	// limits can be set later.
	Count bool
	// KillAll kills every process of the container if there is no control group. Nil: pid 1 is killed, and the
	// kernel then kills its pid namespace.
	KillAll func(context.Context) error
	// Pause stops all processes of the container and Resume continues them. Without a control group, they are
	// the only way to limit processors. One goroutine calls them in turn.
	Pause, Resume func(context.Context) error
	// Stored returns how many bytes the container holds in filesystems in memory, and their device numbers; they
	// count as its memory where no control group does it. Nil: none.
	Stored func() (bytes int64, devices []uint64)

	// noCgroups pretends that the host has no control groups, for tests.
	noCgroups bool
}

// By says by which means a limit is enforced: a control group, a limit of each process, the watcher or
// nothing. An [Enforcement] shows it to the user.
type By string

// The means by which a limit of a container can be enforced, strongest first.
const (
	// ByCgroup2 and ByCgroup1 mean that the kernel limits all processes of the container together, by a
	// control group.
	ByCgroup2 By = "cgroup v2"
	ByCgroup1 By = "cgroup v1"
	// ByRlimit means that the kernel limits each process of the container separately (setrlimit(2)).
	ByRlimit By = "rlimit"
	// ByWatcher means that snapfs's own process (the watcher) measures the usage and kills or pauses the
	// container, as long as that process lives.
	ByWatcher By = "watched"
	// ByNothing means that nothing enforces the limit on this host, which [Options.BestEffort] allows.
	ByNothing By = "nothing"
)

// An Enforcement says how one limit of a container is enforced. [Group.Level] returns one for each limit, to
// be shown to the user.
type Enforcement struct {
	Part Part
	// Value is the limit as text, such as "512M".
	Value string
	By    By
	// Note is an explanation for the user, or "".
	Note string
	// Moot is set if the limit exceeds the host's own resources and has no effect.
	Moot bool
}

// An Rlimit is a limit that each process of a container has separately, in the form of setrlimit(2).
// [Group.Rlimits] makes them, and pid 1 of the container sets them before other processes start.
type Rlimit struct {
	Resource int
	Cur, Max uint64
}

// A LimitHit describes for the user a limit of a container that was hit. [Group.LimitHit] returns it.
type LimitHit struct {
	Part Part
	// Value is the limit as text, such as "2G".
	Value string
	// Text describes the event, such as "memory: 2 GiB used up".
	Text string
	// Killed is set if all processes of the container were killed because of the limit.
	Killed bool
}

// A Known is a measured value of a [Usage] or a [Ceiling]. OK is false if this host does not measure it.
type Known[T any] struct {
	Value T
	OK    bool
}

// MarshalJSON writes the measured value, or null if this host does not measure it.
func (k Known[T]) MarshalJSON() ([]byte, error) {
	if !k.OK {
		return []byte("null"), nil
	}
	return json.Marshal(k.Value)
}

// Usage holds the resources that the processes of a container use together, as [Group.Usage] measures them.
// Sizes are in bytes.
type Usage struct {
	// Memory is the current and the maximum memory, including swap and page cache if a control group counts it.
	Memory, MemoryPeak Known[int64]
	// CPUTime is the CPU time used. Throttled is the time that the processor limit withheld, added up over
	// processors.
	CPUTime, Throttled Known[time.Duration]
	// PIDs counts processes and threads, current and maximum.
	PIDs, PIDsPeak Known[int64]
	// Read and Written are bytes, ReadOps and WriteOps operations, over all disks.
	Read, Written     Known[int64]
	ReadOps, WriteOps Known[int64]
	// PressureCPU, PressureMemory and PressureIO are the share of the last ten seconds in
	// which processes waited for a processor, memory or a disk.
	PressureCPU, PressureMemory, PressureIO Known[Pressure]
}

// Pressure is the share of time in which processes of a container waited for a resource, in percent
// (Documentation/accounting/psi.rst). It is part of a [Usage].
type Pressure struct {
	// Some is the share of time in which at least one process waited; Full that in which all
	// did.
	Some, Full float64
}

// A Ceiling holds the limits of the control groups that contain this process, such as those of a container in
// which snapfs itself runs. [CeilingHere] finds them. A resource without a limit is not Known.
type Ceiling struct {
	// Memory is the lowest memory limit; MemoryLeft is the least memory left below one of the
	// limits, in bytes, where the page cache counts as free.
	Memory, MemoryLeft Known[int64]
	CPUs               Known[float64]
}

package resources

import (
	"time"

	"github.com/snapfs/snapfs/limits"
)

// Usage holds the resource usage of all processes of a sandbox. Unknown values are nil. Sizes are in bytes.
type Usage struct {
	Memory     *int64         `json:"memory,omitempty"`
	MemoryPeak *int64         `json:"memory_peak,omitempty"`
	CPUTime    *time.Duration `json:"cpu_time_ns,omitempty"`
	// Throttled is the total time for which the CPU limit delayed the processes.
	Throttled *time.Duration `json:"throttled_ns,omitempty"`
	PIDs      *int64         `json:"pids,omitempty"`
	PIDsPeak  *int64         `json:"pids_peak,omitempty"`
	Read      *int64         `json:"io_read,omitempty"`
	Written   *int64         `json:"io_written,omitempty"`
	ReadOps   *int64         `json:"io_read_ops,omitempty"`
	WriteOps  *int64         `json:"io_write_ops,omitempty"`
	// Disk and Inodes are what all trees have added to their bases, as it counts for the
	// limits in the fields beside them.
	Disk        *int64 `json:"disk,omitempty"`
	DiskLimit   *int64 `json:"disk_limit,omitempty"`
	Inodes      *int64 `json:"inodes,omitempty"`
	InodesLimit *int64 `json:"inodes_limit,omitempty"`
	// Pressure is the share of the last ten seconds in which some, and in which all, processes
	// waited for CPU, memory or I/O, in percent.
	Pressure map[string]Pressure `json:"pressure,omitempty"`
	// Held lists how each limit is enforced.
	Held []HeldLimit `json:"held,omitempty"`
}

// Pressure is the share of the last ten seconds, in percent, in which some, or all, processes of a sandbox waited for
// a resource.
type Pressure struct {
	Some float64 `json:"some"`
	Full float64 `json:"full"`
}

// A HeldLimit reports how one limit of a sandbox is enforced: by "cgroup v2", "cgroup v1", "rlimit", "watched"
// (snapfs polls the usage) or "nothing".
type HeldLimit struct {
	Limit string `json:"limit"`
	Value string `json:"value"`
	By    string `json:"by"`
	Note  string `json:"note,omitempty"`
}

// Usage returns the resource usage of the sandbox, and how each limit is enforced.
func (a *Resources) Usage() (*Usage, error) {
	u, err := a.Group.Usage()
	if err != nil {
		return nil, err
	}
	usage := usageFrom(&u)
	a.diskUsage(usage)
	for _, l := range a.Group.Level() {
		usage.Held = append(usage.Held, HeldLimit{string(l.Part), l.Value, string(l.By), l.Note})
	}
	return usage, nil
}

// usageFrom converts the usage that package limits measured into the form that is sent to clients.
func usageFrom(u *limits.Usage) *Usage {
	usage := &Usage{
		Memory: valueOf(u.Memory), MemoryPeak: valueOf(u.MemoryPeak), CPUTime: valueOf(u.CPUTime), Throttled: valueOf(u.Throttled),
		PIDs: valueOf(u.PIDs), PIDsPeak: valueOf(u.PIDsPeak), Read: valueOf(u.Read), Written: valueOf(u.Written), ReadOps: valueOf(u.ReadOps), WriteOps: valueOf(u.WriteOps),
		Pressure: map[string]Pressure{},
	}
	for of, p := range map[string]limits.Known[limits.Pressure]{"cpu": u.PressureCPU, "memory": u.PressureMemory, "io": u.PressureIO} {
		if p.OK {
			usage.Pressure[of] = Pressure(p.Value)
		}
	}
	return usage
}

// valueOf returns a pointer to a measured value, or nil if it is not known.
func valueOf[T any](k limits.Known[T]) *T {
	if !k.OK {
		return nil
	}
	return &k.Value
}

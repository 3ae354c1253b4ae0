package limits

import (
	"errors"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
)

// Limits are the resources that the processes of a container may use, all together unless a
// field says otherwise. Zero means no limit.
type Limits struct {
	// CPUs limits the number of processors, averaged over a tenth of a second: 1.5 is one and
	// a half.
	CPUs float64
	// Memory limits the memory in bytes, including swapped memory and the page cache. When it
	// is used up, the kernel kills all processes.
	Memory int64
	// PIDs limits the number of processes and threads, including pid 1 of the container.
	// Creating one more fails (EAGAIN).
	PIDs int64
	// ReadRate and WriteRate limit bytes per second, ReadOps and WriteOps requests per second,
	// for each of [Options.Devices].
	ReadRate, WriteRate int64
	ReadOps, WriteOps   int64
	// CPUTime limits the total CPU time of all processes. When it is used up, they are killed.
	CPUTime time.Duration
	// Files limits the number of open files of each process.
	Files int64
}

// Part is the name of one limit, such as "memory" or "cpus", in messages and in snapfs's flags.
type Part string

// The names of the limits, in the order of the fields of [Limits]. snapfs's flags have the same names.
const (
	PartCPUs      Part = "cpus"
	PartMemory    Part = "memory"
	PartPIDs      Part = "pids"
	PartReadRate  Part = "io-read"
	PartWriteRate Part = "io-write"
	PartReadOps   Part = "io-read-ops"
	PartWriteOps  Part = "io-write-ops"
	PartCPUTime   Part = "cpu-time"
	PartFiles     Part = "files"
)

// The lowest limits, of bytes, processes and open files, with which a container can start. Check refuses
// lower ones.
const (
	minMemory = 1 << 20
	minPIDs   = 2 // pid 1 and a command
	minFiles  = 8 // a dynamic loader's open files, and the standard three
)

// Check returns an error if a limit is outside the range that a host can have. The error matches [errs.ErrInvalid]
// and names the limit.
func (l Limits) Check() error {
	bad := func(p Part, why string) error {
		return &errs.Error{Op: "limiting " + string(p), Kind: errs.ErrInvalid, Err: errors.New(why)}
	}
	switch {
	case l.CPUs != 0 && !(l.CPUs >= units.MinCPUs && l.CPUs <= units.MaxCPUs): // also matches NaN
		return bad(PartCPUs, units.FormatCPUs(l.CPUs)+" is not between 0.01 and 8192 processors")
	case l.Memory < 0 || l.Memory > 0 && l.Memory < minMemory || l.Memory > units.MaxSize:
		return bad(PartMemory, units.FormatSize(l.Memory)+" is not between 1M, the least that a command starts in, and 1E")
	case l.PIDs < 0 || l.PIDs > 0 && l.PIDs < minPIDs || l.PIDs > units.MaxCount:
		return bad(PartPIDs, units.FormatCount(l.PIDs)+" is not between 2, for pid 1 and a command, and what a host can have")
	case l.CPUTime < 0 || l.CPUTime > units.MaxDuration:
		return bad(PartCPUTime, units.FormatDuration(l.CPUTime)+" is not between nothing and a hundred years")
	case l.Files < 0 || l.Files > 0 && l.Files < minFiles || l.Files > units.MaxCount:
		return bad(PartFiles, units.FormatCount(l.Files)+" is not between 8, which a command needs to start, and what a host can have")
	}
	return l.checkRates(bad)
}

// checkRates checks the four limits of reading and writing disks. For the first invalid one it returns the
// error that bad makes of its name and the reason; else nil.
func (l Limits) checkRates(bad func(Part, string) error) error {
	for _, io := range l.rates() {
		if io.value < 0 || io.value > units.MaxSize {
			return bad(io.part, units.FormatCount(io.value)+" is not between nothing and what a disk can do")
		}
	}
	return nil
}

// A rate is one of the four limits of reading and writing disks, in bytes or operations a second (0 for
// none), with its file or key in cgroup version 1 (Documentation/admin-guide/cgroup-v1/blkio-controller.rst)
// and version 2 (Documentation/admin-guide/cgroup-v2.rst, io.max).
type rate struct {
	part   Part
	value  int64
	v1, v2 string
}

func (l Limits) rates() [4]rate {
	return [...]rate{
		{PartReadRate, l.ReadRate, "blkio.throttle.read_bps_device", "rbps"},
		{PartWriteRate, l.WriteRate, "blkio.throttle.write_bps_device", "wbps"},
		{PartReadOps, l.ReadOps, "blkio.throttle.read_iops_device", "riops"},
		{PartWriteOps, l.WriteOps, "blkio.throttle.write_iops_device", "wiops"},
	}
}

func (l Limits) anyRate() bool {
	return l.ReadRate != 0 || l.WriteRate != 0 || l.ReadOps != 0 || l.WriteOps != 0
}

// An entry is one limit that is set in a [Limits], with its value as text, such as "memory" and "512M".
type entry struct {
	part Part
	text string
}

// entries lists the limits that are set (not zero), in the order of the fields, with their values as text for
// the user.
func (l Limits) entries() []entry {
	var list []entry
	add := func(there bool, p Part, text func() string) {
		if there {
			list = append(list, entry{p, text()})
		}
	}
	add(l.CPUs != 0, PartCPUs, func() string { return units.FormatCPUs(l.CPUs) })
	add(l.Memory != 0, PartMemory, func() string { return units.FormatSize(l.Memory) })
	add(l.PIDs != 0, PartPIDs, func() string { return units.FormatCount(l.PIDs) })
	for i, io := range l.rates() {
		if i < 2 {
			add(io.value != 0, io.part, func() string { return units.FormatRate(io.value) })
		} else {
			add(io.value != 0, io.part, func() string { return units.FormatCount(io.value) })
		}
	}
	add(l.CPUTime != 0, PartCPUTime, func() string { return units.FormatDuration(l.CPUTime) })
	add(l.Files != 0, PartFiles, func() string { return units.FormatCount(l.Files) })
	return list
}

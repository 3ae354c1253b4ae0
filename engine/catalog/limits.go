package catalog

import "time"

// Limits say how much a sandbox may use: processors, memory, disk, time. They are part of its record and
// policy. Zero means no limit. Sizes are in bytes, rates in bytes per second.
type Limits struct {
	// CPUs limits the processor time of all processes together, in processors.
	CPUs float64 `json:"cpus,omitempty"`
	// Memory limits the memory of all processes together, in bytes; PIDs limits the number of
	// processes and threads.
	Memory int64 `json:"memory,omitempty"`
	PIDs   int64 `json:"pids,omitempty"`
	// Files limits the number of open files of each process.
	Files int64 `json:"files,omitempty"`
	// ReadRate and the fields after it limit bytes and operations per second, from and to each
	// disk.
	ReadRate  int64 `json:"io_read,omitempty"`
	WriteRate int64 `json:"io_write,omitempty"`
	ReadOps   int64 `json:"io_read_ops,omitempty"`
	WriteOps  int64 `json:"io_write_ops,omitempty"`
	// CPUTime limits the processor time of all processes of one start together.
	CPUTime time.Duration `json:"cpu_time_ns,omitempty"`
	// Disk and Inodes limit the bytes and files that each tree holds beyond its base.
	Disk   int64 `json:"disk,omitempty"`
	Inodes int64 `json:"inodes,omitempty"`
	// Time limits the duration of each command.
	Time time.Duration `json:"time_ns,omitempty"`
	// Idle is the time without activity after which the sandbox is paused.
	Idle time.Duration `json:"idle_ns,omitempty"`
	// TTL is the lifetime of the sandbox from its creation. At its end the sandbox is paused
	// and starts no further command.
	TTL time.Duration `json:"ttl_ns,omitempty"`
	// RemoveAfter is the time from the end of the TTL, or without a TTL from the creation,
	// until the sandbox is removed. With KeepEnd the sandbox ends instead, and its named
	// snapshots stay.
	RemoveAfter time.Duration `json:"remove_after_ns,omitempty"`
	KeepEnd     bool          `json:"keep_end,omitempty"`
}

// A LimitHit says which limit ended or paused a command or sandbox, for messages to the user and the audit.
type LimitHit struct {
	// Limit is the limit's name, and Value its text form: "memory", "2G".
	Limit string `json:"limit"`
	Value string `json:"value"`
	// Text describes what exceeding the limit did, such as ending a process.
	Text string    `json:"text"`
	When time.Time `json:"when,omitzero"`
}

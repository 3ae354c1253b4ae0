package catalog

import "time"

// Limits are how much a sandbox may use. Zero is no limit. Sizes are in bytes,
// rates in bytes per second.
type Limits struct {
	// CPUs is how many processors' time its processes get together.
	CPUs float64 `json:"cpus,omitempty"`
	// Memory is theirs together, and PIDs how many there may be.
	Memory int64 `json:"memory,omitempty"`
	PIDs   int64 `json:"pids,omitempty"`
	// Files is how many files each process may have open.
	Files int64 `json:"files,omitempty"`
	// Rates and operations per second, from and to each disk.
	ReadRate  int64 `json:"io_read,omitempty"`
	WriteRate int64 `json:"io_write,omitempty"`
	ReadOps   int64 `json:"io_read_ops,omitempty"`
	WriteOps  int64 `json:"io_write_ops,omitempty"`
	// CPUTime is what the processes of one start may compute together.
	CPUTime time.Duration `json:"cpu_time_ns,omitempty"`
	// Disk and Inodes are what its files may hold beyond the base, each tree by
	// itself.
	Disk   int64 `json:"disk,omitempty"`
	Inodes int64 `json:"inodes,omitempty"`
	// Time is how long each command may take.
	Time time.Duration `json:"time_ns,omitempty"`
	// Idle is how long what runs in the sandbox may do nothing before it is paused.
	Idle time.Duration `json:"idle_ns,omitempty"`
	// TTL is how long the sandbox itself lives, from when it was made; then what
	// runs in it is paused, and nothing is started.
	TTL time.Duration `json:"ttl_ns,omitempty"`
	// RemoveAfter is how long after its TTL, or after it was made where it has none,
	// the sandbox is removed. With KeepEnd it ends instead, as its named states.
	RemoveAfter time.Duration `json:"remove_after_ns,omitempty"`
	KeepEnd     bool          `json:"keep_end,omitempty"`
}

// A Hit is a limit that ended, or paused, something in a sandbox.
type Hit struct {
	// Limit is its name, and Value what it was, as it is written: "memory", "2G".
	Limit string `json:"limit"`
	Value string `json:"value"`
	// Text says what happened.
	Text string    `json:"text"`
	When time.Time `json:"when,omitzero"`
}

package mount

import (
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Bounds of the memory of a server process, which keeps every name that its fork has added or changed in
// memory, each with its attributes in about a kilobyte. The server is outside of the sandbox's limits, so it
// has a bound of its own: a quarter of the host's memory, between these two.
const (
	leastMemory = 256 << 20
	mostMemory  = 2 << 30
)

// LimitMemory bounds the memory of this process, which serves a fork: at three quarters of the bound, calls
// that add a name or an attribute fail with ENOSPC. Everything else still works, and nothing that was done is
// lost.
func LimitMemory() {
	var info unix.Sysinfo_t
	bound := int64(leastMemory)
	if unix.Sysinfo(&info) == nil {
		bound = min(max(int64(info.Totalram)*int64(info.Unit)/4, leastMemory), mostMemory)
	}
	debug.SetMemoryLimit(bound)
	fullAt.Store(uint64(bound) / 4 * 3)
}

var (
	fullAt atomic.Uint64 // bytes of live heap from which the server takes no more names; 0 means no bound
	added  atomic.Uint64 // calls of room
	full   atomic.Bool   // the answer of the last measurement
)

// room returns ENOSPC if this process, which serves a fork, has no memory left within its bound for another
// name or attribute. At every hundredth call it measures how much memory the last garbage collection left in
// use.
func room() error {
	if most := fullAt.Load(); most > 0 && added.Add(1)%100 == 1 {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		full.Store(live[0].Value.Uint64() > most)
	}
	if full.Load() {
		return unix.ENOSPC
	}
	return nil
}

// Package spare gives a FUSE server as many processors of Go's runtime (GOMAXPROCS) as its loop needs.
//
// go-fuse 2.12 makes one more thread wait in read(2) than the runtime has processors, and each waiting thread
// occupies a processor. When none is idle, the runtime takes processors back every 20 µs, and a thread that
// returns with a request must get one again, by a lock and often futex(2). With more processors than waiting
// threads, the runtime leaves them alone. For a tar x of 5,000 small files in package fusecow this saves a
// sixth of the server's processor time, and with four at once a quarter of the time (Linux 6.18, two
// processors, 2026-11-24).
package spare

import (
	"runtime"
	"sync"
)

// more is how many processors of Go's runtime (GOMAXPROCS) [Loop] gives a FUSE server beyond those that its
// waiting threads occupy: one that stays idle, and some for requests that wait for a disk. On a machine with
// two processors, two and three gained less when four programs sent requests at once.
const more = 4

var (
	mu      sync.Mutex
	initial = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })
)

// Loop calls do, which creates a FUSE server, and then increases GOMAXPROCS, so that the server's waiting
// threads leave processors free. The garbage collector may use the additional processors, too. Afterwards the
// runtime no longer follows the processor limit of its cgroup (runtime.SetDefaultGOMAXPROCS). Cost: it stops
// all goroutines for some 50 µs.
func Loop(do func()) {
	mu.Lock()
	defer mu.Unlock()
	n := initial()
	runtime.GOMAXPROCS(n)
	do()
	runtime.GOMAXPROCS(n + more)
}

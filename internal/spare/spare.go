// Package spare gives a FUSE server the number of processors of Go's runtime that its loop needs.
//
// The library makes one thread more wait for requests in read(2) than the runtime has processors when a server
// is created (3 to 17; NewServer of go-fuse 2.12), and each of them occupies one processor. When no processor
// is idle, the runtime takes them back every 20 µs (retake in runtime/proc.go, Go 1.26), and a thread that
// returns with a request must acquire one again, by the runtime's lock and often by futex(2). With more
// processors than waiting threads, the runtime takes none back from a thread that has waited for less than 10
// ms. For a tar x of 5,000 small files in package fusecow this saves a sixth of the server's processor time and
// a quarter of its context switches, and with four at once a quarter of the time (Linux 6.18, two processors,
// 2026-11-24).
package spare

import (
	"runtime"
	"sync"
)

// more is the number of processors besides those of waiting threads: one that stays idle, and some for requests
// that wait for a disk. On a machine with two processors, two and three gained less when four programs sent
// requests at once.
const more = 4

var (
	mu      sync.Mutex
	initial = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })
)

// Loop calls do, which creates a server, with the processors that the runtime began with, and then increases
// their number. The garbage collector may use idle ones, too. Afterwards the runtime no longer follows the
// processors of its cgroup (runtime.SetDefaultGOMAXPROCS). Cost: it stops all goroutines for some 50 µs.
func Loop(do func()) {
	mu.Lock()
	defer mu.Unlock()
	n := initial()
	runtime.GOMAXPROCS(n)
	do()
	runtime.GOMAXPROCS(n + more)
}

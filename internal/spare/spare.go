// Package spare gives a process that answers for a FUSE filesystem the processors of Go's
// runtime that its loop needs.
//
// The library has one thread more wait for requests in read(2) than the runtime has processors
// when a server is made (3 to 17; NewServer of go-fuse 2.12), and each of them keeps one. When none is
// left idle, the runtime takes them back every 20 µs (retake in runtime/proc.go, Go 1.26), and who
// returns with a request has to get one again, by the runtime's lock and often by futex(2). With
// more processors than waiting threads nothing is taken back that has waited for less than 10 ms.
// Of a tar x of 5,000 small files in package fusecow that saves a sixth of the server's processor time and a quarter of its
// context switches, and of four at once a quarter of the time (Linux 6.18, two processors, 2026-11-24).
package spare

import (
	"runtime"
	"sync"
)

// more is how many processors there are beside those of the threads that wait: for one that
// is idle, and for requests that wait for a disk. With two processors of the machine, two and
// three more were less of a gain where four programs asked at once.
const more = 4

var (
	mu  sync.Mutex
	own = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })
)

// Loop calls do, which makes a server, with the processors that the runtime began with, and
// gives it more of them from then on, of which the collection of garbage may use what is
// idle, too. Cost: it stops all goroutines for some 50 µs. It ends that the runtime follows the processors of its cgroup (runtime.SetDefaultGOMAXPROCS).
func Loop(do func()) {
	mu.Lock()
	defer mu.Unlock()
	n := own()
	runtime.GOMAXPROCS(n)
	do()
	runtime.GOMAXPROCS(n + more)
}

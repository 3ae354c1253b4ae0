//go:build linux

package launch

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// forkers are the threads that forked a pid 1, which must not end: the kernel kills a pid 1
// when the thread that forked it ends (PR_SET_PDEATHSIG(2const)). A thread of a Go program
// ends only with a goroutine that is locked to it.
var forkers threads

// StartPID1 is [Image.Start] for the pid 1 of a container, on a thread that does not end before it. The
// caller calls ReleaseThread when pid 1 has ended.
func (im *Image) StartPID1(first Step, flags uint64, group int) (pid, pidfd, thread int, err error) {
	forkers.mu.Lock()
	defer forkers.mu.Unlock()
	if pid, pidfd, thread, err = im.Start(first, flags, group); err == nil {
		forkers.count(thread, 1)
	}
	return pid, pidfd, thread, err
}

// ReleaseThread allows the thread that [Image.StartPID1] returned to end. Until then it may not, since the
// kernel would kill the pid 1 that it forked.
func ReleaseThread(thread int) {
	forkers.mu.Lock()
	defer forkers.mu.Unlock()
	forkers.count(thread, -1)
}

// threads counts, for each thread of this program, the containers whose pid 1 it forked and that still live.
type threads struct {
	mu         sync.Mutex
	containers map[int]int
}

// count adds n to the number of containers whose pid 1 the thread forked. The caller holds mu.
func (t *threads) count(thread, n int) {
	if t.containers == nil {
		t.containers = map[int]int{}
	}
	if t.containers[thread] += n; t.containers[thread] == 0 {
		delete(t.containers, thread)
	}
}

func (t *threads) has(thread int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.containers[thread] > 0
}

// OnOwnThread runs f on a thread that ends after f, so that changes of the thread, such as of its namespaces,
// end with it. The caller runs it in a goroutine of its own.
func OnOwnThread(f func()) {
	runtime.LockOSThread()
	if !forkers.has(unix.Gettid()) {
		f()
		return // still locked
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		OnOwnThread(f)
	}()
	<-done // blocks this thread, so that the new goroutine gets another
	runtime.UnlockOSThread()
}

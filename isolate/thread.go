//go:build linux

package isolate

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// forkers are the threads that forked a pid 1, which must not end: the kernel kills a pid 1 when the thread
// that forked it ends (PR_SET_PDEATHSIG(2const)). A thread of a Go program ends only with a goroutine that is
// locked to it.
var forkers threads

// threads counts the containers by the thread that forked their pid 1.
type threads struct {
	mu         sync.Mutex
	containers map[int]int
}

// count adds n containers to a thread. The caller holds mu.
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

// onOwnThread runs f on a thread that ends with it. The caller runs it in a goroutine of its own.
func onOwnThread(f func()) {
	runtime.LockOSThread()
	if !forkers.has(unix.Gettid()) {
		f()
		return // still locked
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		onOwnThread(f)
	}()
	<-done // blocks this thread, so that the new goroutine gets another
	runtime.UnlockOSThread()
}

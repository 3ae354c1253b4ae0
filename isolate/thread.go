//go:build linux

package isolate

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// The kernel kills a pid 1 when the thread that forked it ends
// (PR_SET_PDEATHSIG(2const)). Threads of a Go program end only with a goroutine
// that is locked to one, so those that are to end are none of forkers.
var forkers threads

// threads counts the boxes by the thread that forked their pid 1.
type threads struct {
	mu    sync.Mutex
	boxes map[int]int
}

// count adds n boxes to a thread. The caller holds mu.
func (t *threads) count(thread, n int) {
	if t.boxes == nil {
		t.boxes = map[int]int{}
	}
	if t.boxes[thread] += n; t.boxes[thread] == 0 {
		delete(t.boxes, thread)
	}
}

func (t *threads) has(thread int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.boxes[thread] > 0
}

// onOwnThread runs f, in a goroutine of its own, on a thread that ends with it.
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
	<-done // keeping this thread from the goroutine
	runtime.UnlockOSThread()
}

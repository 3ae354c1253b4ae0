package notifier

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A waiter waits for the system calls that a seccomp filter stops.
//
// A goroutine needs one of GOMAXPROCS processors of the Go runtime to execute Go code. After 20 µs in a system call, a
// thread that the runtime wakes for this takes the processor away, and the goroutine wakes a thread when it returns.
// Both together take several times the processor time of an observation. So where calls follow one another within the
// time dense, the waiter retains its processor while it waits, for at most dense. Of all waiters of this process only
// one does so at a time. A garbage collection does not wait that long: it interrupts the waiting by a signal to the
// thread.
type waiter struct {
	listener int
	dense    time.Duration
	last     time.Time // when the last call came
	keep     bool      // retain the processor of the runtime
}

// taken is set while a waiter of this process retains its processor.
var taken atomic.Bool

// setKeep makes the waiter retain its processor while it waits, unless another waiter does, or give it up again.
func (w *waiter) setKeep(keep bool) {
	switch {
	case keep && !w.keep:
		w.keep = taken.CompareAndSwap(false, true)
	case !keep && w.keep:
		w.keep = false
		taken.Store(false)
	}
}

// newWaiter returns a waiter for the calls that the filter with the descriptor listener stops.
func newWaiter(listener int) *waiter {
	return &waiter{listener: listener, dense: 20 * time.Millisecond}
}

// next waits until the kernel has a notification of a stopped system call. It returns false when no process with the
// filter is left; the caller then calls setKeep(false).
func (w *waiter) next() bool {
	for {
		events, err := w.poll()
		switch {
		case err == unix.EINTR, err == nil && events == 0:
		case err != nil:
			return false
		case events&unix.POLLIN != 0:
			now := time.Now()
			w.setKeep(now.Sub(w.last) < w.dense && runtime.GOMAXPROCS(0) > 1)
			w.last = now
			return true
		default:
			return false
		}
	}
}

// poll waits for events of the filter's descriptor. If the waiter retains its processor, it waits for at most the time
// dense, then gives the processor up and returns no events.
func (w *waiter) poll() (events int16, err error) {
	fds := [1]unix.PollFd{{Fd: int32(w.listener), Events: unix.POLLIN}}
	if !w.keep {
		_, err = unix.Poll(fds[:], -1)
		return fds[0].Revents, err
	}
	timeout := unix.NsecToTimespec(int64(w.dense))
	n, _, errno := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 1, uintptr(unsafe.Pointer(&timeout)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	w.setKeep(n > 0)
	return fds[0].Revents, nil
}

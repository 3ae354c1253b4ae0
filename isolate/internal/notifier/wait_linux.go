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
// Go's scheduler takes a goroutine's right to execute Go code from it after 20 µs in a system call, by a thread that it
// wakes for that, and that the goroutine wakes again when it returns. These two take several times the processor time
// of an observation. So where calls follow one another within the time dense, the waiter keeps the right, which is one
// of GOMAXPROCS, while it waits, for at most dense; of all waiters of this process only one does. A collection of
// garbage need not wait that long: it sends the thread a signal, which interrupts the waiting.
type waiter struct {
	listener int
	dense    time.Duration
	last     time.Time // when the last call was there
	keep     bool      // keep the right to execute Go code
}

// taken is set while a waiter keeps the right to execute Go code.
var taken atomic.Bool

// setKeep makes the waiter keep the right to execute Go code while it waits, unless another one does, or no longer.
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

// next waits until the kernel has a notification of a system call that the filter has stopped. It returns false when no
// process with the filter is left; the caller calls setKeep(false) then.
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

// poll waits for events of the filter's descriptor, for at most the time dense if the waiter keeps the right to execute
// Go code; then it returns none, and the next poll waits without that right.
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

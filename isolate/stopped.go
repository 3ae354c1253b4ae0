//go:build linux

package isolate

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/poll"
)

// The kernel continues a process that SIGSTOP has stopped at every SIGCONT, also at one that the process has
// ordered before: from a timer (timer_create(2)), or for news on an open file (F_SETSIG of fcntl(2)). A freeze by
// signals must therefore look for processes that run again. Nothing else in the container sends a signal meanwhile.

// stopAgain is how long a freeze of a container waits until it sends SIGSTOP once more to processes that have
// not stopped, or have continued since.
const stopAgain = 20 * time.Millisecond

// firstGuard and lastGuard are the first and the longest interval at which a frozen container is looked at for
// processes that continue themselves. Each interval is twice the one before.
const (
	firstGuard = 5 * time.Millisecond
	lastGuard  = time.Second
)

// guardStopped starts a goroutine that kills each process of the container that runs again although SIGSTOP has
// stopped it. asleep holds the pids in uninterruptible sleep; all other processes have stopped. The goroutine ends
// when the container has ended, or when the caller calls end, which waits for it.
func (c *Container) guardStopped(asleep map[int]int) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	before := map[int]byte{}
	for pid := range asleep {
		before[pid] = 'D'
	}
	go func() {
		defer close(done)
		_ = poll.Until(ctx, firstGuard, lastGuard, func() (bool, error) { // an error: end was called
			if c.ended() {
				return true, nil
			}
			before = killContinued(c.pid, before)
			return false, nil
		})
	}()
	return func() {
		cancel()
		<-done
	}
}

// killContinued kills each process below the process pid, a container's pid 1, that runs now and was not in the
// kernel at the call before, and returns the state of each for the next call. A process that was in
// uninterruptible sleep ('D') may run for a moment before it stops.
func killContinued(pid int, before map[int]byte) map[int]byte {
	now := map[int]byte{}
	for _, t := range descendants(pid) {
		switch t.state {
		case 'T', 't', 'Z', 'X':
		case 'D':
			now[t.pid] = t.state
		default:
			if before[t.pid] != 'D' {
				_ = unix.Kill(t.pid, unix.SIGKILL) // it may have ended
			}
		}
	}
	return now
}

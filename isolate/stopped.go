//go:build linux

package isolate

import (
	"context"
	"maps"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/isolate/internal/stopped"
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

// guardStopped starts a goroutine that sends SIGSTOP again to each process of the container that runs although SIGSTOP
// has stopped it, and kills one that it finds running again and again. asleep holds the pids in uninterruptible sleep;
// all other processes have stopped. The goroutine ends when the container has ended, or when the caller calls end,
// which waits for it.
func (c *Container) guardStopped(asleep map[int]int) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	guard := stopped.NewGuard(c.pid, c.isThere, slices.Collect(maps.Keys(asleep)))
	go func() {
		defer close(done)
		for ctx.Err() == nil && !c.ended() { // each time that one ran, it begins again with the first interval
			waited := false
			_ = poll.Until(ctx, firstGuard, lastGuard, func() (bool, error) { // an error: end was called
				ran := waited && guard.Look()
				waited = true
				return ran || c.ended(), nil
			})
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// isThere reports whether pid 1 is still there, so that no other process has its pid.
func (c *Container) isThere() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pidfd >= 0 && unix.PidfdSendSignal(c.pidfd, 0, nil, 0) == nil
}

// A receiver gets a signal: a process, or with group all processes of the group that it leads.
type receiver struct {
	process *Process
	group   bool
}

// SendNow implements [stopped.Receiver].
func (to receiver) SendNow(sig syscall.Signal) error {
	if to.group {
		return to.process.signalGroup(sig)
	}
	return to.process.signal(sig)
}

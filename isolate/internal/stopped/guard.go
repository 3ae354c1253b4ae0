//go:build linux

package stopped

import (
	"time"

	"golang.org/x/sys/unix"
)

// mostContinued is how often a guard of a frozen container finds a process running until it kills that process.
// continuedAgain is the least time between two of these, within which a busy host lets each process stop.
const (
	mostContinued  = 5
	continuedAgain = 250 * time.Millisecond
)

// A Guard keeps the processes of a container stopped that SIGSTOP has stopped. Its maps are by pid.
type Guard struct {
	pid   int         // of the container's pid 1
	there func() bool // reports whether that is still there
	// asleep are the processes that were in uninterruptible sleep ('D') at the last look. Such a process may run for a
	// moment before it stops.
	asleep  map[int]bool
	ran     map[int]int       // how often a process was found running
	counted map[int]time.Time // when ran was counted last
}

// NewGuard returns a guard of the processes below the process pid, a container's pid 1. there reports whether that
// has not been reaped. asleep are processes in uninterruptible sleep; all others have stopped.
func NewGuard(pid int, there func() bool, asleep []int) *Guard {
	g := &Guard{pid: pid, there: there, asleep: map[int]bool{}, ran: map[int]int{}, counted: map[int]time.Time{}}
	for _, pid := range asleep {
		g.asleep[pid] = true
	}
	return g
}

// Look sends SIGSTOP to each process that runs now and was not in uninterruptible sleep at the call before,
// or SIGKILL to one that ran too often. It reports whether there is one.
func (g *Guard) Look() bool {
	asleep, signals := map[int]bool{}, map[int]unix.Signal{}
	for _, t := range Threads(g.pid) {
		switch t.State {
		case 'T', 't', 'Z', 'X':
		case 'D':
			asleep[t.PID] = true
		default:
			if !g.asleep[t.PID] {
				signals[t.PID] = unix.SIGSTOP
			}
		}
	}
	g.asleep = asleep
	for pid := range signals {
		if time.Since(g.counted[pid]) >= continuedAgain {
			g.ran[pid]++
			g.counted[pid] = time.Now()
		}
		if g.ran[pid] >= mostContinued {
			signals[pid] = unix.SIGKILL
		}
	}
	g.signalEach(signals)
	return len(signals) > 0
}

// signalEach sends each process, by its pid, a signal, if the process is one of the container. A pid alone may be
// another process by now: it is one of the container if it is found there after its pidfd was opened, while pid 1 is
// still there.
func (g *Guard) signalEach(signals map[int]unix.Signal) {
	fds := map[int]int{}
	for pid := range signals {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil { // otherwise it has ended
			defer unix.Close(fd)
			fds[pid] = fd
		}
	}
	all := Threads(g.pid)
	if !g.there() {
		return
	}
	for _, t := range all {
		if fd, ok := fds[t.PID]; ok {
			delete(fds, t.PID)                                   // its other threads get the signal too
			_ = unix.PidfdSendSignal(fd, signals[t.PID], nil, 0) // it may have ended
		}
	}
}

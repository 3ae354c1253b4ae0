// Package activity measures how long a sandbox has been idle, for the limit idle of its policy. [Meter] takes the
// CPU time of the sandbox's processes and watches the streams of its commands. It decides nothing: the caller
// pauses the sandbox.
package activity

import (
	"os"
	"sync"
	"time"

	"github.com/snapfs/snapfs/internal/stdio"
)

// A Meter measures how long a sandbox has been idle, for the idle limit. A sandbox is active when its processes
// use more CPU time than idleCPU, when a command's streams are read or written, or when a command begins or ends.
// Idle time is measured with this process's monotonic clock, which stops while the machine is suspended.
type Meter struct {
	since    time.Time
	observed time.Time
	used     time.Duration // CPU time at the last observation
	spent    time.Duration // CPU time used since then
	streams  map[*stream]bool
}

// A stream is one of a command's standard streams or its terminal. A [Meter] observes it, and stores here when it
// was last used and how much input was unread at the last observation.
type stream struct {
	*stdio.Stream
	outer   bool // the outer end of a terminal
	used    time.Time
	waiting int
}

// unreadGrew reports whether more input waits to be read than at the last observation. Only that wakes a paused
// sandbox. Output does not count, because it may be snapfs's own notice that the sandbox is paused.
func (s *stream) unreadGrew() bool {
	if s.outer {
		return !s.Typed().Equal(s.used)
	}
	was := s.waiting
	s.waiting = s.Waiting()
	return s.waiting > was
}

// moved reports whether a terminal or pipe of a command was read or written since the last observation.
func (s *stream) moved() bool {
	was := s.used
	s.used = s.Used()
	return !s.used.Equal(was)
}

// The CPU time that waiting processes use for timers and accounting, and which does not count as activity: a
// hundredth of one CPU, plus one tick of the clock by which the kernel counts without control groups.
const (
	noiseShare = 100
	noiseTick  = 10 * time.Millisecond
)

// coarse is the resolution of a terminal's timestamps in Linux: reads and writes within 8 seconds of the last
// change are not visible in them. A [Meter] therefore takes a terminal that was used to be in use for that
// much longer.
const coarse = 8 * time.Second

// PollInterval returns how often to check whether a sandbox has been idle for limit: ten times in that period, but
// not more often than every 50 ms nor less often than every 5 s.
func PollInterval(limit time.Duration) time.Duration {
	return min(max(limit/10, 50*time.Millisecond), 5*time.Second)
}

// idleCPU returns how much CPU time the processes of a sandbox may use in a period of this length while the sandbox
// still counts as idle.
func idleCPU(in time.Duration) time.Duration { return noiseTick + in/noiseShare }

// Reset notes that the sandbox is active now: its idle time starts at zero again.
func (q *Meter) Reset() { q.since, q.spent = time.Now(), 0 }

// Observe returns how long the sandbox has been idle until now. used is the CPU time of its processes so far; nil, if
// unknown, counts as activity. While the sandbox is paused, only new unread input counts as activity.
func (q *Meter) Observe(paused bool, used *time.Duration) time.Duration {
	now := time.Now()
	happened := !paused && used == nil // with an unknown CPU time, assume activity
	if used != nil {
		more := *used - q.used
		q.used, q.spent = *used, q.spent+more
		happened = more > idleCPU(now.Sub(q.observed)) || q.spent > idleCPU(now.Sub(q.since))
	}
	q.observed = now
	late := now
	for s := range q.streams {
		switch {
		case paused && s.unreadGrew():
			happened = true
		case !paused && s.moved():
			happened = true
			if s.Coarse {
				late = now.Add(coarse) // changes within one step of the clock are invisible
			}
		}
	}
	if happened {
		q.since, q.spent = late, 0
	}
	return now.Sub(q.since)
}

// Remember stores how much unread input each stream has, before the sandbox is paused for being idle. New input after
// that resumes the sandbox.
func (q *Meter) Remember() {
	for s := range q.streams {
		s.waiting = s.Waiting()
		if s.outer {
			s.used = s.Typed()
		}
	}
}

// AddStreams adds a command's terminal and streams to those whose use counts as activity, until the caller
// calls leave. Streams that cannot be observed are left out. mu is the caller's lock for the Meter: the
// caller holds it now, and leave locks it.
func (q *Meter) AddStreams(mu *sync.Mutex, pty *os.File, files []*os.File) (leave func()) {
	var mine []*stream
	for i, f := range append([]*os.File{pty}, files...) {
		if f == nil {
			continue
		}
		if s, err := stdio.Observe(f); err == nil {
			mine = append(mine, &stream{Stream: s, outer: i == 0, used: s.Used()})
		}
	}
	if q.streams == nil {
		q.streams = map[*stream]bool{}
	}
	for _, s := range mine {
		q.streams[s] = true
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range mine {
			if q.streams[s] {
				delete(q.streams, s)
				s.Close()
			}
		}
	}
}

// Close stops observing the terminals and pipes of all commands of the sandbox for activity.
func (q *Meter) Close() {
	for s := range q.streams {
		delete(q.streams, s)
		s.Close()
	}
}

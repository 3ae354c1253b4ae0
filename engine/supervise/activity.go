package supervise

import (
	"os"
	"sync"
	"time"

	"github.com/snapfs/snapfs/internal/stdio"
)

// activity is for how long nothing has happened in a box: its processes have computed no
// more than noise, nothing was typed or written on the streams of its commands, and
// no command began or ended. By this process's own clock, which stands still while
// the machine is suspended, as the box does.
type activity struct {
	since    time.Time
	observed time.Time
	used     time.Duration // processor time, when it was looked last
	spent    time.Duration // and since nothing has happened
	streams  map[*stream]bool
}

// A stream is one of a command's, as it was last looked at.
type stream struct {
	*stdio.Stream
	outer   bool // of a terminal
	used    time.Time
	waiting int
}

// come reports whether something has come that nobody has read, since s was marked.
// What is written to a stream of output does not count: the note that the box stands
// still may be.
func (s *stream) unreadGrew() bool {
	if s.outer {
		return !s.Typed().Equal(s.used)
	}
	was := s.waiting
	s.waiting = s.Waiting()
	return s.waiting > was
}

// moved reports whether it was written to, or read from, since it was last looked at.
func (s *stream) moved() bool {
	was := s.used
	s.used = s.Used()
	return !s.used.Equal(was)
}

// The noise of processes that wait: timers, and what counts them. A hundredth of one
// processor, and a tick of the clock by which the kernel counts without control groups.
const (
	noiseShare = 100
	noiseTick  = 10 * time.Millisecond
)

// coarse is the step in which a terminal's times go on.
const coarse = 8 * time.Second

// pollInterval is how often is looked for a limit.
func pollInterval(limit time.Duration) time.Duration {
	return min(max(limit/10, 50*time.Millisecond), 5*time.Second)
}

func idleCPU(in time.Duration) time.Duration { return noiseTick + in/noiseShare }

func (q *activity) reset() { q.since, q.spent = time.Now(), 0 }

// look answers for how long nothing has happened. used is what the processes have
// computed by now, nil where that is not known; while they stand still, what waits for
// them to be read counts instead.
func (q *activity) observe(still bool, used *time.Duration) time.Duration {
	now := time.Now()
	happened := !still && used == nil // nothing is ended on a guess
	if used != nil {
		more := *used - q.used
		q.used, q.spent = *used, q.spent+more
		happened = more > idleCPU(now.Sub(q.observed)) || q.spent > idleCPU(now.Sub(q.since))
	}
	q.observed = now
	late := now
	for s := range q.streams {
		switch {
		case still && s.unreadGrew():
			happened = true
		case !still && s.moved():
			happened = true
			if s.Coarse {
				late = now.Add(coarse) // what comes within the step is not seen
			}
		}
	}
	if happened {
		q.since, q.spent = late, 0
	}
	return now.Sub(q.since)
}

// remember remembers what waits to be read now, before the box stands still.
func (q *activity) remember() {
	for s := range q.streams {
		s.waiting = s.Waiting()
		if s.outer {
			s.used = s.Typed()
		}
	}
}

// attend looks at streams too, until the answer is called. Those that cannot be looked
// at are left out. The caller holds mu.
func (q *activity) addStreams(mu *sync.Mutex, pty *os.File, files []*os.File) (leave func()) {
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

func (q *activity) close() {
	for s := range q.streams {
		delete(q.streams, s)
		s.Close()
	}
}

package resources

import (
	"sync"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/isolate"
)

// GracePeriod is how long a command that reached a time limit may run on between SIGTERM and SIGKILL.
const GracePeriod = 2 * time.Second

// StartCountdown enforces a command's time limit: it sends SIGTERM when the command has run that long, and SIGKILL a
// GracePeriod later. Pauses do not count. The caller calls ended when the command has ended.
func (a *Resources) StartCountdown(p *isolate.Process) (ended func()) {
	a.mu.Lock()
	limit := a.limits.Time
	a.mu.Unlock()
	if limit == 0 {
		return func() {}
	}
	a.clock.begin(p, limit, func() {
		a.Note(catalog.LimitHit{
			Limit: "time", Value: units.FormatDuration(limit), Text: "time: the command took longer than " + units.FormatDuration(limit),
		})
		p.Signal(syscall.SIGTERM) //nolint:errcheck // the process may have ended
		a.clock.begin(p, GracePeriod, func() {
			p.Signal(syscall.SIGKILL) //nolint:errcheck // the process may have ended
		})
	})
	return func() { a.clock.end(p) }
}

// countdowns holds the time that each command of a sandbox has left until its limit. Pauses stop all.
type countdowns struct {
	mu      sync.Mutex
	stopped bool
	all     map[*countdown]bool
}

// A countdown calls the function then when a command has run for as long as its time limit allows.
type countdown struct {
	of    *isolate.Process
	left  time.Duration // when the timer was last started
	since time.Time
	timer *time.Timer // nil while stopped
	then  func()
}

// begin calls then when of, the process of a command, has run for the time left, in which pauses do not count.
func (s *countdowns) begin(of *isolate.Process, left time.Duration, then func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*countdown]bool{}
	}
	c := &countdown{of: of, left: left, then: then}
	s.all[c] = true
	if !s.stopped {
		s.run(c)
	}
}

// end cancels the countdowns to the time limit of a process, which has ended.
func (s *countdowns) end(of *isolate.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		if c.of == of {
			delete(s.all, c)
			if c.timer != nil {
				c.timer.Stop()
			}
		}
	}
}

// run starts the timer of a command's countdown to its time limit. The caller holds mu.
func (s *countdowns) run(c *countdown) {
	c.since = time.Now()
	c.timer = time.AfterFunc(c.left, func() {
		s.mu.Lock()
		over := s.all[c] && !s.stopped && time.Since(c.since) >= c.left // false if stop came after the timer fired
		if over {
			delete(s.all, c)
		}
		s.mu.Unlock()
		if over {
			c.then()
		}
	})
}

// stop pauses the countdowns of all commands, while the sandbox is paused, until resume.
func (s *countdowns) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for c := range s.all {
		c.timer.Stop()
		c.left -= time.Since(c.since)
	}
}

// resume continues, after stop, the countdowns of all commands to their time limits.
func (s *countdowns) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = false
	for c := range s.all {
		s.run(c)
	}
}

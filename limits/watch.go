//go:build linux

package limits

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A watcher checks the limits of a container when the kernel reports a hit or a time has passed, and enforces
// those that no control group enforces. [Group.Attach] starts it.
type watcher struct {
	wake      chan struct{} // holds one value
	quit      context.Context
	cancel    context.CancelFunc
	running   sync.WaitGroup
	notices   *notices
	throttler throttler
	once      sync.Once
}

func (w *watcher) init() {
	w.wake = make(chan struct{}, 1)
	w.quit, w.cancel = context.WithCancel(context.Background())
}

// poke makes the watcher check the container's limits now. It does not wait for the check.
func (w *watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// stop ends the watcher, which checks the container's limits, and waits for its goroutines.
func (w *watcher) stop() {
	w.once.Do(func() {
		w.cancel()
		if w.notices != nil {
			w.notices.close()
		}
		w.running.Wait()
	})
}

// watch starts the goroutines of the watcher, which check the container's limits until [watcher.stop].
func (g *Group) watch() error {
	notices, err := g.subscribe()
	if err != nil {
		return err
	}
	if g.watcher.notices = notices; notices != nil {
		g.watcher.running.Go(func() { g.watcher.listen(notices) })
	}
	g.watcher.running.Go(g.loop)
	return nil
}

// The watcher of a container's limits checks them pollsAfterNotice times after a report of the kernel, first
// after firstPoll, because the report may arrive before the kernel has counted its event. pollInterval is the
// interval of its other checks.
const (
	pollsAfterNotice = 8
	firstPoll        = 500 * time.Microsecond // doubled after each poll
	pollInterval     = 50 * time.Millisecond
)

// loop is the watcher's goroutine. It checks the container's limits when the kernel reports a hit or a timer
// ends, until the group closes.
func (g *Group) loop() {
	defer g.resume()
	hurry, soon := 0, firstPoll
	for {
		wait := g.poll()
		if hurry > 0 {
			hurry--
			wait, soon = shorter(wait, soon), 2*soon
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-g.watcher.quit.Done():
			return
		case <-g.watcher.wake:
			hurry, soon = pollsAfterNotice, firstPoll
		case <-timer:
		}
	}
}

// shorter returns the shorter of two waiting times, of which zero stands for no wait. The watcher, which
// checks a container's limits, finds by it when to check next.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// poll checks the container's limits once, enforces those that no control group enforces, and returns after
// which time to check again, or zero to wait for a report of the kernel.
func (g *Group) poll() time.Duration {
	g.life.RLock()
	defer g.life.RUnlock()
	if g.closed {
		return 0
	}
	g.mu.Lock()
	g.check()
	kill, wait := g.counts.kill, g.nextPoll()
	g.mu.Unlock()
	if kill {
		g.resume() // in version 1 a frozen process takes no signal, and KillAll may not know of the pause
		if err := g.kill(g.watcher.quit); err != nil {
			return pollInterval
		}
		g.mu.Lock()
		g.counts.kill = false
		g.mu.Unlock()
	}
	return shorter(wait, g.throttle(g.watcher.quit))
}

// nextPoll returns the shortest time after which the container could hit a limit that snapfs itself, not the
// kernel, enforces; 0 if there is no such limit.
func (g *Group) nextPoll() time.Duration {
	wait := g.nextWatched()
	if g.l.CPUTime == 0 {
		return wait
	}
	used, ok := g.cpuTime()
	if !ok || slices.Contains(g.counts.reported, PartCPUTime) {
		return shorter(wait, pollInterval) // no process has started, or the container is being killed
	}
	// The earliest time is with all processors busy. CPU time between two checks is at most a hundredth of the
	// limit, or 10 ms.
	n := time.Duration(processors())
	least := max(g.l.CPUTime/100, 10*time.Millisecond) / n
	return shorter(wait, max((g.l.CPUTime-used)/n, least, time.Millisecond, costFactor*g.counts.cost))
}

//go:build linux

package limits

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A watcher waits for the kernel's notices and for times to look, and acts.
type watcher struct {
	events  chan Cause
	wake    chan struct{} // holds one
	quit    context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	notices *notices
	meter   meter
	once    sync.Once
}

func (w *watcher) init() {
	w.events = make(chan Cause, 16)
	w.wake = make(chan struct{}, 1)
	w.quit, w.cancel = context.WithCancel(context.Background())
}

// poke has it look now.
func (w *watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// tell sends an event unless nobody has read for long. The group is not closed.
func (w *watcher) tell(c Cause) {
	select {
	case w.events <- c:
	default:
	}
}

// stop ends it, and answers when it has ended.
func (w *watcher) stop() {
	w.once.Do(func() {
		w.cancel()
		if w.notices != nil {
			w.notices.close()
		}
		w.running.Wait()
	})
}

// watch begins to watch.
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

// How often it looks: a notice may come before what it is about has been counted.
const (
	looksAfterNotice = 8
	firstLook        = 500 * time.Microsecond // then twice that, and so on
	watchEvery       = 50 * time.Millisecond
)

// loop looks when it is told to and when it is time to, until the group closes.
func (g *Group) loop() {
	defer g.release()
	hurry, soon := 0, firstLook
	for {
		wait := g.look()
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
			hurry, soon = looksAfterNotice, firstLook
		case <-timer:
		}
	}
}

// shorter of two waits, where zero is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// look looks once, acts on what it sees, and says when to look again; zero: when
// there is a notice.
func (g *Group) look() time.Duration {
	g.life.RLock()
	defer g.life.RUnlock()
	if g.closed {
		return 0
	}
	g.mu.Lock()
	g.examine()
	kill, wait := g.tally.kill, g.nextLook()
	g.mu.Unlock()
	if kill {
		g.release() // in version 1 what stands still takes no signal, and KillAll may not know
		if err := g.kill(g.watcher.quit); err != nil {
			return watchEvery
		}
		g.mu.Lock()
		g.tally.kill = false
		g.mu.Unlock()
	}
	return shorter(wait, g.hold(g.watcher.quit))
}

// nextLook is when a limit that is watched could be hit at the earliest, or 0.
func (g *Group) nextLook() time.Duration {
	wait := g.nextWatched()
	if g.l.CPUTime == 0 {
		return wait
	}
	used, ok := g.cpuTime()
	if !ok || slices.Contains(g.tally.told, PartCPUTime) {
		return shorter(wait, watchEvery) // it has not begun, or what begins now is killed
	}
	// With all processors busy the rest lasts so long. What runs on between two
	// looks is a hundredth at most, or 10 ms.
	n := time.Duration(processors())
	least := max(g.l.CPUTime/100, 10*time.Millisecond) / n
	return shorter(wait, max((g.l.CPUTime-used)/n, least, time.Millisecond, thrift*g.tally.cost))
}

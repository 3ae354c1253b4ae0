package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A watcher waits for the kernel's notices and for times to look, and acts.
type watcher struct {
	events  chan Cause
	wake    chan struct{} // holds one
	quit    context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	notices []*os.File
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
		for _, f := range w.notices {
			f.Close()
		}
		w.running.Wait()
	})
}

// watch begins to watch, if there is anything to.
func (g *Group) watch() error {
	if err := g.subscribe(); err != nil {
		return err
	}
	for _, f := range g.watcher.notices {
		g.watcher.running.Go(func() {
			var buf [4096]byte
			for {
				if _, err := f.Read(buf[:]); err != nil {
					return // closed
				}
				g.watcher.poke()
			}
		})
	}
	g.watcher.running.Go(g.loop)
	return nil
}

// subscribe asks the kernel to tell when a limit is hit: by inotify where a
// counter changes, by an eventfd for memory in version 1
// (Documentation/admin-guide/cgroup-v1/memory.rst, "OOM Control").
func (g *Group) subscribe() error {
	var files []string
	if m := g.find("pids"); m != nil {
		files = append(files, m.path+"/pids.events")
	}
	if m := g.find("memory"); m != nil && m.version == 2 {
		files = append(files, m.path+"/memory.events")
	} else if m != nil {
		f, err := m.subscribeOOM()
		if err != nil {
			return err
		}
		g.watcher.notices = append(g.watcher.notices, f)
	}
	if len(files) == 0 {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return failed("watching limits", "inotify", err)
	}
	g.watcher.notices = append(g.watcher.notices, os.NewFile(uintptr(fd), "inotify"))
	for _, file := range files {
		if _, err := unix.InotifyAddWatch(fd, file, unix.IN_MODIFY); err != nil && !errors.Is(err, unix.ENOENT) {
			return failed("watching limits", file, err)
		}
	}
	return nil
}

func (m *member) subscribeOOM() (*os.File, error) {
	const control = "memory.oom_control"
	fd, err := unix.Openat(int(m.dir.Fd()), control, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failed("watching memory", m.path+"/"+control, err)
	}
	defer unix.Close(fd)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, failed("watching memory", "eventfd", err)
	}
	f := os.NewFile(uintptr(event), "eventfd")
	if err := m.write("cgroup.event_control", fmt.Sprint(event, " ", fd)); err != nil {
		f.Close()
		return nil, failed("watching memory", m.path+"/cgroup.event_control", err)
	}
	return f, nil
}

// How often it looks: a notice may come before what it is about has been counted.
const (
	looksAfterNotice = 8
	firstLook        = 500 * time.Microsecond // then twice that, and so on
	watchEvery       = 50 * time.Millisecond
)

// loop looks when it is told to and when it is time to, until the group closes.
func (g *Group) loop() {
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
		if err := g.kill(g.watcher.quit); err != nil {
			return watchEvery
		}
		g.mu.Lock()
		g.tally.kill = false
		g.mu.Unlock()
	}
	return wait
}

// nextLook is when a limit that is watched could be hit at the earliest, or 0.
func (g *Group) nextLook() time.Duration {
	wait := g.nextWatched()
	if g.l.CPUTime == 0 {
		return wait
	}
	used, ok := g.cpuTime()
	if !ok || used >= g.l.CPUTime {
		return wait
	}
	// With all processors busy the rest lasts so long. What runs on between two
	// looks is a hundredth at most, or 10 ms.
	n := time.Duration(processors())
	least := max(g.l.CPUTime/100, 10*time.Millisecond) / n
	return shorter(wait, max((g.l.CPUTime-used)/n, least, time.Millisecond))
}

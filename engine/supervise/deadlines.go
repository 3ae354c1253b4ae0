package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
)

// A deadlines watches over the time of what runs in a box. When the sandbox's is over, or
// nothing has happened in it for long, it has the box stand still where the sandbox
// stays, so that what ran goes on where it stood; otherwise it ends the box.
type deadlines struct {
	manager    *Manager
	supervisor *Supervisor
	// stays: the sandbox is not gone with the command that made it.
	persistent bool
	wake       chan struct{} // holds one
	quit       context.Context
	end        context.CancelFunc
	runs       sync.WaitGroup
	saved      *catalog.LimitHit // what the record says of the box; the loop's own
	// starting counts what is being started: meanwhile the box is not idle.
	starting atomic.Int64

	mu        sync.Mutex
	rec       catalog.Record // Policy and Life are this process's own
	begun     bool           // the loop runs
	activity  activity
	listeners map[*fdsock.Conn]bool
}

// How often it looks at the least: timers stand still while a machine is suspended,
// the life of a sandbox does not.
const maxCheckInterval = 30 * time.Second

// startDeadlines begins to watch where the sandbox has a limit of time.
func (sv *Manager) startDeadlines(h *Supervisor, rec *catalog.Record) *deadlines {
	w := &deadlines{manager: sv, supervisor: h, persistent: !rec.Ephemeral, wake: make(chan struct{}, 1), rec: *rec, saved: rec.Paused}
	w.quit, w.end = context.WithCancel(context.Background())
	w.set(rec.Policy.Limits)
	return w
}

// set has other limits hold from now on. What stands still for one that does not any
// more goes on before it returns.
func (w *deadlines) set(l catalog.Limits) {
	w.mu.Lock()
	w.rec.Policy.Limits = l
	if l.Timed() && !w.begun && w.quit.Err() == nil {
		w.begun = true
		w.activity.reset()
		w.runs.Go(w.loop)
	}
	late := sandbox.Overdue(l, w.rec.AgeAt(catalog.Now()))
	w.mu.Unlock()
	if !late {
		w.resume("ttl")
	}
	w.resume("idle")
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// stop ends the watching.
func (w *deadlines) stop() {
	w.mu.Lock()
	w.end() // under the lock, so that no loop begins after it
	w.mu.Unlock()
	w.runs.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.activity.close()
}

func (w *deadlines) loop() {
	for {
		wait := w.check()
		select {
		case <-w.quit.Done():
			return
		case <-w.supervisor.Container.Done():
			return
		case <-w.wake:
		case <-time.After(wait):
		}
	}
}

// check looks once, does what is due, and says when to look again.
func (w *deadlines) check() time.Duration {
	w.mu.Lock()
	l, age := w.rec.Policy.Limits, w.rec.AgeAt(catalog.Now())
	w.mu.Unlock()
	wait := maxCheckInterval
	switch end := l.Over(); {
	case end > 0 && age >= end:
		w.supervisor.Resources.note(sandbox.RemoveHit(l))
		if w.supervisor.Container.Close(w.quit) != nil {
			return time.Second
		}
		return maxCheckInterval // whoever waits for its end does the rest
	case sandbox.Overdue(l, age):
		if end > 0 {
			wait = min(wait, end-age)
		}
		if !w.pause(sandbox.TTLHit(l), l, age, func() bool { return w.pausedFor("ttl") }) {
			wait = time.Second
		}
	default:
		if l.TTL > 0 {
			wait = min(wait, l.TTL-age)
		} else if end > 0 {
			wait = min(wait, end-age)
		}
		if l.Idle > 0 {
			wait = min(wait, w.checkActivity(l, age))
		}
	}
	if !w.remindOwner() {
		wait = min(wait, 20*time.Millisecond) // somebody works on the sandbox
	}
	return wait
}

func (w *deadlines) pausedFor(limit string) bool {
	why := w.supervisor.Resources.paused.Load()
	return why != nil && why.Limit == limit
}

// checkActivity pauses a box in which nothing has happened for the limit, and has one go
// on for which something has come.
func (w *deadlines) checkActivity(l catalog.Limits, age time.Duration) time.Duration {
	every := pollInterval(l.Idle)
	paused := w.pausedFor("idle")
	var used *time.Duration
	if !paused {
		if u, err := w.supervisor.Resources.Group.Usage(); err == nil {
			used = valueOf(u.CPUTime)
		}
	}
	w.mu.Lock()
	since := w.activity.observe(paused, used)
	w.mu.Unlock()
	switch {
	case paused && since < every:
		w.resume("idle")
	case paused:
		return every
	case since >= l.Idle:
		w.mu.Lock()
		w.activity.remember()
		w.mu.Unlock()
		w.pause(sandbox.IdleHit(l), l, age, func() bool { return w.starting.Load() > 0 })
		return every
	}
	return min(every, max(l.Idle-since, time.Millisecond))
}

// pause has the box stand still, or ends it, unless the condition holds once nothing
// can be started in it. It reports whether there is nothing to try again.
func (w *deadlines) pause(why catalog.LimitHit, l catalog.Limits, age time.Duration, unless func() bool) bool {
	if !w.persistent {
		w.supervisor.Resources.note(why)
		return w.supervisor.Container.Close(w.quit) == nil
	}
	ctx, cancel := context.WithTimeout(w.quit, 10*time.Second)
	defer cancel()
	done, err := w.supervisor.Resources.pauseFor(ctx, why, unless)
	if done {
		w.notify(sandbox.PausedNote(w.rec.Name, why, l, age))
	}
	return err == nil
}

// goOn lets the box go on, where it stands still for the limit.
func (w *deadlines) resume(limit string) {
	if !w.pausedFor(limit) {
		return
	}
	w.mu.Lock()
	w.activity.reset()
	w.mu.Unlock()
	if done, err := w.supervisor.Resources.resumeFrom(w.quit, limit); done && err == nil {
		w.notify("it goes on")
	}
}

// told has the record say whether the box stands still, and reports whether it does.
func (w *deadlines) remindOwner() bool {
	if !w.persistent || w.saved == w.supervisor.Resources.paused.Load() {
		return true
	}
	held, err := w.manager.cat.TryLock(w.rec.Name)
	if err != nil {
		return errors.Is(err, errs.ErrNotFound)
	}
	defer held.Release()
	w.supervisor.mu.Lock()
	served := w.supervisor.reachable()
	w.supervisor.mu.Unlock()
	if held.ID != w.rec.ID || !served {
		return false // not yet, or not any more
	}
	why := w.supervisor.Resources.paused.Load()
	if held.Paused = why; why != nil {
		held.LimitHit = why
	}
	if held.Save() != nil {
		return false
	}
	w.saved = why
	return true
}

// refuseWhenPaused says why nothing may be started in the box, or nil. To be asked while still
// is held for reading.
func (w *deadlines) refuseWhenPaused() error {
	w.mu.Lock()
	err := sandbox.RefuseOverdue(&w.rec, catalog.Now())
	w.mu.Unlock()
	why := w.supervisor.Resources.paused.Load()
	if err != nil || why == nil {
		return err
	}
	return &errs.Error{Op: "entering", Path: w.rec.Name, Kind: errs.ErrDenied, Err: errors.New("it is paused: " + why.Text)}
}

// countActivity: something happens in the box, which goes on where it stood still because
// nothing did. Until the answer is called, more is to happen.
func (w *deadlines) countActivity() (done func()) {
	w.starting.Add(1)
	w.mu.Lock()
	w.activity.reset()
	w.mu.Unlock()
	w.resume("idle")
	return func() { w.starting.Add(-1) }
}

// watchStreams takes what is written to streams for life in the box, until the answer is
// called.
func (w *deadlines) watchStreams(pty *os.File, streams ...*os.File) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.persistent && w.rec.Policy.Limits.Idle == 0 {
		return func() {}
	}
	return w.activity.addStreams(&w.mu, pty, streams)
}

// addListener tells a client what happens to its command, until the answer is called.
func (w *deadlines) addListener(client *fdsock.Conn) (deaf func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners == nil {
		w.listeners = map[*fdsock.Conn]bool{}
	}
	w.listeners[client] = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.listeners, client)
	}
}

func (w *deadlines) notify(note string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	msg, err := json.Marshal(reply{Note: note})
	if err != nil {
		return
	}
	for client := range w.listeners {
		_ = client.TrySend(msg) // one who does not listen misses it, and holds up nobody
	}
}

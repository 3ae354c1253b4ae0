package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/isolate"
)

// A deadlines enforces the time limits of a running sandbox: ttl, idle and remove-after. At
// the end of ttl or idle it pauses the container of a persistent sandbox, so that its
// processes can resume later, and ends the container of an ephemeral one.
type deadlines struct {
	manager    *Manager
	supervisor *Supervisor
	// persistent is set if the sandbox outlives the command that created it.
	persistent bool
	wake       chan struct{} // capacity 1
	quit       context.Context
	end        context.CancelFunc
	runs       sync.WaitGroup
	saved      *catalog.LimitHit // what the record says; used only by the loop
	// starting counts commands that are being started. While it is not 0, the container is not
	// idle.
	starting atomic.Int64

	mu        sync.Mutex
	rec       catalog.Record // Policy and Life are current only here
	looping   bool           // the loop runs
	activity  activity
	listeners map[*fdsock.Conn]*listener
}

// A listener is a client that waits for its command.
type listener struct {
	command  *isolate.Process
	endAtTTL bool
	told     bool              // that its command has started, and may get notices
	ended    *catalog.LimitHit // the ttl that ended the command
}

// maxCheckInterval is the longest time between two checks. Timers stop while a machine is
// suspended, but the sandbox's lifetime does not.
const maxCheckInterval = 30 * time.Second

// startDeadlines returns the deadlines of a started sandbox and enforces them if it has a time
// limit.
func (sv *Manager) startDeadlines(h *Supervisor, rec *catalog.Record) *deadlines {
	w := &deadlines{manager: sv, supervisor: h, persistent: !rec.Ephemeral, wake: make(chan struct{}, 1), rec: *rec, saved: rec.Paused}
	w.quit, w.end = context.WithCancel(context.Background())
	if rec.Policy.Limits.Timed() {
		w.set(rec.Policy.Limits)
	}
	return w
}

// set replaces the limits. It resumes a container that was paused for a limit that no longer
// applies, before it returns.
func (w *deadlines) set(l catalog.Limits) {
	w.mu.Lock()
	age := w.rec.AgeAt(catalog.Now())
	due := sandbox.Overdue(w.rec.Policy.Limits, age)
	w.rec.Policy.Limits = l
	if l.Timed() && !w.looping && w.quit.Err() == nil {
		w.looping = true
		w.activity.reset()
		w.runs.Go(w.loop)
	}
	late := sandbox.Overdue(l, age)
	w.mu.Unlock()
	switch {
	case late:
	case due:
		w.resumeWhenFrozen("ttl") // the loop may be about to pause the container for the old ttl
	default:
		w.resume("ttl")
	}
	w.resume("idle")
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// stop ends the enforcement and waits for its goroutine.
func (w *deadlines) stop() {
	w.mu.Lock()
	w.end() // under the lock, so that no loop begins later
	w.mu.Unlock()
	w.runs.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.activity.close()
}

// loop checks the limits whenever one may be due, until the container ends.
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

// check enforces the limits that are due and returns the time until the next check.
func (w *deadlines) check() time.Duration {
	w.mu.Lock()
	l, age := w.rec.Policy.Limits, w.rec.AgeAt(catalog.Now())
	w.mu.Unlock()
	wait := maxCheckInterval
	switch end := l.RemovalAge(); {
	case end > 0 && age >= end:
		w.supervisor.Resources.note(sandbox.RemoveHit(l))
		if w.supervisor.Container.Close(w.quit) != nil {
			return time.Second
		}
		return maxCheckInterval // the goroutine that waits for its end does the rest
	case sandbox.Overdue(l, age):
		if end > 0 {
			wait = min(wait, end-age)
		}
		if !w.pause(sandbox.TTLHit(l), l, age, func() bool { return w.pausedFor("ttl") || !w.overdue() }) {
			wait = time.Second
		}
	default:
		w.resume("ttl") // a pause may have begun before a longer ttl was set
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
		wait = min(wait, 20*time.Millisecond) // the sandbox's lock is held: try again soon
	}
	return wait
}

// overdue reports whether the sandbox has reached its ttl, which may have changed since the check began.
func (w *deadlines) overdue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sandbox.Overdue(w.rec.Policy.Limits, w.rec.AgeAt(catalog.Now()))
}

// pausedFor reports whether the container is paused for the named limit.
func (w *deadlines) pausedFor(limit string) bool {
	why := w.supervisor.Resources.paused.Load()
	return why != nil && why.Limit == limit
}

// checkActivity pauses the container when it has been idle for the limit, and resumes it when
// input arrives. It returns the time until the next check.
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

// pause pauses the container of a persistent sandbox and closes that of an ephemeral one, for
// the limit why. With startLock held it calls unless, and does nothing if that returns true.
// It returns false if pausing failed; the caller tries again.
func (w *deadlines) pause(why catalog.LimitHit, l catalog.Limits, age time.Duration, unless func() bool) bool {
	if !w.persistent {
		w.supervisor.Resources.note(why)
		return w.supervisor.Container.Close(w.quit) == nil
	}
	ctx, cancel := context.WithTimeout(w.quit, 10*time.Second)
	defer cancel()
	note, left := sandbox.PausedNote(w.rec.Name, why, l, age), false
	if why.Limit == "ttl" {
		w.endCommands(ctx, why, note)
	}
	done, err := w.supervisor.Resources.pauseFor(ctx, why, func() bool {
		left = why.Limit == "ttl" && len(w.endAtTTL()) > 0
		return left || unless()
	})
	if done {
		w.notify(note)
	}
	return err == nil && !left
}

// endAtTTL returns the clients whose commands end at the sandbox's ttl.
func (w *deadlines) endAtTTL() (clients []*fdsock.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for client, l := range w.listeners {
		if l.endAtTTL {
			clients = append(clients, client)
		}
	}
	return clients
}

// endCommands ends the commands that end at the sandbox's ttl, as --time does, and sends note to
// their clients first. It waits until they have ended, up to two grace periods.
func (w *deadlines) endCommands(ctx context.Context, why catalog.LimitHit, note string) {
	clients := w.endAtTTL()
	if len(clients) == 0 {
		return
	}
	if w.pausedFor("idle") { // the signal would wait
		w.supervisor.Resources.resumeFrom(ctx, "idle") //nolint:errcheck // SIGKILL follows
	}
	why.When = time.Now()
	msg, _ := json.Marshal(Reply{Note: note}) // cannot fail
	groups := map[int]bool{}
	defer func() { awaitGone(ctx, groups) }()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		w.mu.Lock()
		if sig == syscall.SIGTERM && !sandbox.Overdue(w.rec.Policy.Limits, w.rec.AgeAt(catalog.Now())) {
			w.mu.Unlock()
			return // a longer ttl has been set meanwhile
		}
		for _, client := range clients {
			l := w.listeners[client]
			if l == nil {
				continue
			}
			if l.ended == nil && l.told {
				_ = client.TrySend(msg) // never blocks
			}
			l.ended = &why
			groups[l.command.HostPID()] = true
			l.command.SignalGroup(sig) //nolint:errcheck // it may have ended
		}
		w.mu.Unlock()
		for end := time.Now().Add(GracePeriod); time.Now().Before(end); pause(ctx, 5*time.Millisecond) {
			if len(w.endAtTTL()) == 0 || ctx.Err() != nil {
				return
			}
		}
	}
}

// awaitGone waits until the process groups have no members, up to a grace period. A member that was killed
// but is paused before it has died keeps its pipes open, for which others wait.
func awaitGone(ctx context.Context, groups map[int]bool) {
	delete(groups, 0)
	for end := time.Now().Add(GracePeriod); time.Now().Before(end) && ctx.Err() == nil; pause(ctx, time.Millisecond) {
		maps.DeleteFunc(groups, func(id int, _ bool) bool { return syscall.Kill(-id, 0) != nil })
		if len(groups) == 0 {
			return
		}
	}
}

// resume resumes the container if it is paused for the named limit.
func (w *deadlines) resume(limit string) {
	if w.pausedFor(limit) {
		w.resumeWhenFrozen(limit)
	}
}

// resumeWhenFrozen does the same as resume, and first waits for a pause that is under way.
func (w *deadlines) resumeWhenFrozen(limit string) {
	w.mu.Lock()
	w.activity.reset()
	w.mu.Unlock()
	if done, err := w.supervisor.Resources.resumeFrom(w.quit, limit); done && err == nil {
		w.notify("resumed")
	}
}

// remindOwner saves in the sandbox's record whether the container is paused, and reports
// whether the record is up to date. It does not wait for the sandbox's lock.
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
		return false // not registered yet, or no longer
	}
	why := w.supervisor.Resources.paused.Load()
	if held.Paused = why; why != nil {
		held.LimitHit = why
	}
	if held.Save() != nil {
		return false
	}
	w.saved = why
	if why != nil {
		w.manager.keyPoints.Take(context.Background(), held, w.manager.SealAll, catalog.Why{Point: catalog.AtLimit, Limit: why.Limit})
	}
	return true
}

// refuseWhenPaused returns the error of a command that may not start because the sandbox is
// paused or its time is over, or nil. The caller holds startLock for reading.
func (w *deadlines) refuseWhenPaused() error {
	w.mu.Lock()
	err := sandbox.RefuseOverdue(&w.rec, catalog.Now())
	w.mu.Unlock()
	why := w.supervisor.Resources.paused.Load()
	if err != nil || why == nil {
		return err
	}
	return &errs.Error{Op: "entering", Path: w.rec.Name, Kind: errs.ErrDenied, Err: errors.New("the sandbox is paused: " + why.Text)}
}

// countActivity counts a request as activity, and resumes a container that was paused for
// idleness. The container is not idle until the caller calls done.
func (w *deadlines) countActivity() (done func()) {
	w.starting.Add(1)
	w.mu.Lock()
	w.activity.reset()
	w.mu.Unlock()
	w.resume("idle")
	return func() { w.starting.Add(-1) }
}

// watchStreams counts reads and writes of a command's streams as activity, until the caller
// calls leave.
func (w *deadlines) watchStreams(pty *os.File, streams ...*os.File) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.persistent && w.rec.Policy.Limits.Idle == 0 {
		return func() {}
	}
	return w.activity.addStreams(&w.mu, pty, streams)
}

// addListener registers the client of a command, which gets notices after tell. The caller calls
// deaf at the command's end, which returns the ttl that ended the command, or nil.
func (w *deadlines) addListener(client *fdsock.Conn, command *isolate.Process, endAtTTL bool) (deaf func() *catalog.LimitHit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners == nil {
		w.listeners = map[*fdsock.Conn]*listener{}
	}
	l := &listener{command: command, endAtTTL: endAtTTL}
	w.listeners[client] = l
	return func() *catalog.LimitHit {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.listeners, client)
		return l.ended
	}
}

// tell lets a client that knows of its command's start get notices.
func (w *deadlines) tell(client *fdsock.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.listeners[client]; l != nil {
		l.told = true
	}
}

// notify sends a notice to all listening clients. A client whose socket is full misses it.
func (w *deadlines) notify(note string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	msg, err := json.Marshal(Reply{Note: note})
	if err != nil {
		return
	}
	for client, l := range w.listeners {
		if l.told {
			_ = client.TrySend(msg) // never blocks
		}
	}
}

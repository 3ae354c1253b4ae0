package supervise

import (
	"context"
	"errors"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/supervise/activity"
	"github.com/snapfs/snapfs/engine/supervise/resources"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/isolate"
)

// GracePeriod is how long a command that reached a time limit may run on between SIGTERM and SIGKILL.
const GracePeriod = resources.GracePeriod

// A deadlines enforces the time limits of a running sandbox: ttl, idle and remove-after. When the ttl or the idle
// limit is reached, it pauses the processes of a persistent sandbox, so that they can resume later, and ends those of
// an ephemeral one.
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
	// starting counts commands that are being started. While it is not 0, the container is not idle.
	starting atomic.Int64

	mu        sync.Mutex
	rec       catalog.Record // Policy and Life are current only here
	looping   bool           // the loop runs
	activity  activity.Meter
	listeners map[*fdsock.Conn]*listener
}

// A listener is a client of the supervisor that waits for its command to end, and gets notices such as a pause.
type listener struct {
	command  *isolate.Process
	endAtTTL bool
	told     bool              // that its command has started, and may get notices
	ended    *catalog.LimitHit // the ttl that ended the command
}

// maxCheckInterval is the longest time between two checks of a sandbox's time limits. Timers stop while a machine is
// suspended, but the sandbox's lifetime does not; so after a suspension a check comes soon.
const maxCheckInterval = 30 * time.Second

// startDeadlines returns the deadlines object of a sandbox that has just started. If the sandbox has a time limit, a
// goroutine begins to enforce it; otherwise that begins when a limit is set later, or when a spent budget pauses the
// sandbox.
func (sv *Manager) startDeadlines(h *Supervisor, rec *catalog.Record) *deadlines {
	w := &deadlines{manager: sv, supervisor: h, persistent: !rec.Ephemeral, wake: make(chan struct{}, 1), rec: *rec, saved: rec.Paused}
	w.quit, w.end = context.WithCancel(context.Background())
	if rec.Policy.Limits.Timed() {
		w.set(rec.Policy.Limits)
	}
	return w
}

// set replaces the time limits of the running sandbox by those of l. If the sandbox was paused for a limit that no
// longer applies, set resumes it before it returns.
func (w *deadlines) set(l catalog.Limits) {
	w.mu.Lock()
	age := w.rec.AgeAt(catalog.Now())
	due := sandbox.Overdue(w.rec.Policy.Limits, age)
	w.rec.Policy.Limits = l
	if l.Timed() {
		w.startLoop()
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
	w.wakeLoop()
}

// startLoop starts the goroutine that checks the sandbox's time limits and saves its pauses, unless it runs already or
// the sandbox is ending. The caller holds w.mu.
func (w *deadlines) startLoop() {
	if !w.looping && w.quit.Err() == nil {
		w.looping = true
		w.activity.Reset()
		w.runs.Go(w.loop)
	}
}

// wakeLoop makes the loop, if it runs, check the time limits and save a pause now.
func (w *deadlines) wakeLoop() {
	select {
	case w.wake <- struct{}{}:
	default: // it is about to do so
	}
}

// stop ends the enforcement of time limits and waits for its goroutine.
func (w *deadlines) stop() {
	w.mu.Lock()
	w.end() // under the lock, so that no loop begins later
	w.mu.Unlock()
	w.runs.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.activity.Close()
}

// loop checks the sandbox's time limits whenever one may be due, and saves its pauses, until its container ends.
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

// check enforces the time limits that the sandbox has reached, and returns the time until the next check.
func (w *deadlines) check() time.Duration {
	w.mu.Lock()
	l, age := w.rec.Policy.Limits, w.rec.AgeAt(catalog.Now())
	w.mu.Unlock()
	wait := maxCheckInterval
	switch end := l.RemovalAge(); {
	case end > 0 && age >= end:
		w.supervisor.Resources.Note(sandbox.RemoveHit(l))
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

// overdue reports whether the sandbox has reached its ttl, which may have changed since a check began.
func (w *deadlines) overdue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sandbox.Overdue(w.rec.Policy.Limits, w.rec.AgeAt(catalog.Now()))
}

// pausedFor reports whether the sandbox is paused now because it reached the named limit, "ttl" or "idle".
func (w *deadlines) pausedFor(limit string) bool {
	why := w.supervisor.Resources.Paused()
	return why != nil && why.Limit == limit
}

// checkActivity enforces the idle limit of l: it pauses a sandbox that has been idle for as long as the limit, and
// resumes it when input arrives. age is the sandbox's age, for the notice. It returns the time until the next check.
func (w *deadlines) checkActivity(l catalog.Limits, age time.Duration) time.Duration {
	every := activity.PollInterval(l.Idle)
	paused := w.pausedFor("idle")
	var used *time.Duration
	if !paused {
		if u, err := w.supervisor.Resources.Group.Usage(); err == nil && u.CPUTime.OK {
			used = &u.CPUTime.Value
		}
	}
	w.mu.Lock()
	since := w.activity.Observe(paused, used)
	w.mu.Unlock()
	switch {
	case paused && since < every:
		w.resume("idle")
	case paused:
		return every
	case since >= l.Idle:
		w.mu.Lock()
		w.activity.Remember()
		w.mu.Unlock()
		w.pause(sandbox.IdleHit(l), l, age, func() bool { return w.starting.Load() > 0 || w.pausedFor(budgetLimit) })
		return every
	}
	return min(every, max(l.Idle-since, time.Millisecond))
}

// pause pauses a persistent sandbox, and closes the container of an ephemeral one, because it has reached the limit
// why. l and age, for the notice to its clients, are its limits and its age. While no command can start, pause calls
// unless, and does nothing if that returns true. It returns false if pausing failed; the caller tries again.
func (w *deadlines) pause(why catalog.LimitHit, l catalog.Limits, age time.Duration, unless func() bool) bool {
	if !w.persistent {
		w.supervisor.Resources.Note(why)
		return w.supervisor.Container.Close(w.quit) == nil
	}
	ctx, cancel := context.WithTimeout(w.quit, 10*time.Second)
	defer cancel()
	note, left := sandbox.PausedNote(w.rec.Name, why, l, age), false
	if why.Limit == "ttl" {
		w.endCommands(ctx, why, note)
	}
	done, err := w.supervisor.Resources.PauseFor(ctx, why, func() bool {
		left = why.Limit == "ttl" && len(w.endAtTTL()) > 0
		return left || unless()
	})
	if done {
		w.notify(note)
	}
	return err == nil && !left
}

// endAtTTL returns the clients that requested that their commands end, not pause, at the sandbox's ttl.
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

// endCommands ends, with SIGTERM and then SIGKILL, the commands whose clients requested that at the sandbox's ttl.
// First it sends note to these clients. It waits for the commands' end, at most two grace periods.
func (w *deadlines) endCommands(ctx context.Context, why catalog.LimitHit, note string) {
	clients := w.endAtTTL()
	if len(clients) == 0 {
		return
	}
	if w.pausedFor("idle") { // the signal would wait
		w.supervisor.Resources.ResumeFrom(ctx, "idle") //nolint:errcheck // SIGKILL follows
	}
	why.When = time.Now()
	msg, _ := exactjson.Encode(Reply{Note: note}) // cannot fail
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
			if l == nil || !l.endAtTTL || sig == syscall.SIGKILL && l.ended == nil { // or a later command of the connection
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
		for end := time.Now().Add(GracePeriod); time.Now().Before(end); poll.Sleep(ctx, 5*time.Millisecond) {
			if len(w.endAtTTL()) == 0 || ctx.Err() != nil {
				return
			}
		}
	}
}

// awaitGone waits until the process groups with these ids have no members, up to a GracePeriod. The sandbox is about
// to be paused: a killed process that is frozen before it has died would hold its pipes open, and other processes
// wait for their end.
func awaitGone(ctx context.Context, groups map[int]bool) {
	delete(groups, 0)
	for end := time.Now().Add(GracePeriod); time.Now().Before(end) && ctx.Err() == nil; poll.Sleep(ctx, time.Millisecond) {
		maps.DeleteFunc(groups, func(id int, _ bool) bool { return syscall.Kill(-id, 0) != nil })
		if len(groups) == 0 {
			return
		}
	}
}

// resume resumes a sandbox paused for the named limit, "ttl" or "idle", and sends its clients a notice.
func (w *deadlines) resume(limit string) {
	if w.pausedFor(limit) {
		w.resumeWhenFrozen(limit)
	}
}

// resumeWhenFrozen resumes a sandbox paused for the named limit as resume does, and first waits for a pause that is
// under way. It reports whether it has resumed the sandbox.
func (w *deadlines) resumeWhenFrozen(limit string) bool {
	w.mu.Lock()
	w.activity.Reset()
	w.mu.Unlock()
	done, err := w.supervisor.Resources.ResumeFrom(w.quit, limit)
	if !done || err != nil {
		return false
	}
	w.notify("resumed")
	return true
}

// remindOwner saves in the sandbox's catalogue entry whether the sandbox is paused, and reports whether the entry is
// up to date. It does not wait for the sandbox's lock; if that is held, it returns false.
func (w *deadlines) remindOwner() bool {
	if !w.persistent || w.saved == w.supervisor.Resources.Paused() {
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
	why := w.supervisor.Resources.Paused()
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

// refuseWhenPaused returns an error if no command may start because the sandbox is paused or has reached its ttl or
// end, else nil. The caller holds Resources.StartLock for reading.
func (w *deadlines) refuseWhenPaused() error {
	w.mu.Lock()
	err := sandbox.RefuseOverdue(&w.rec, catalog.Now())
	w.mu.Unlock()
	why := w.supervisor.Resources.Paused()
	if err != nil || why == nil {
		return err
	}
	return &errs.Error{Op: "entering", Path: w.rec.Name, Kind: errs.ErrDenied, Err: errors.New("the sandbox is paused: " + why.Text)}
}

// countActivity counts a client's request as activity of the sandbox, and resumes the sandbox if it was paused for
// being idle. Until the caller calls done, the sandbox does not pause again for that reason.
func (w *deadlines) countActivity() (done func()) {
	w.starting.Add(1)
	w.mu.Lock()
	w.activity.Reset()
	w.mu.Unlock()
	w.resume("idle")
	return func() { w.starting.Add(-1) }
}

// watchStreams counts reads and writes of a command's terminal and streams as activity, which postpones the
// idle limit, until leave is called.
func (w *deadlines) watchStreams(pty *os.File, streams ...*os.File) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.persistent && w.rec.Policy.Limits.Idle == 0 {
		return func() {}
	}
	return w.activity.AddStreams(&w.mu, pty, streams)
}

// addListener registers the client of a command, which gets notices about the sandbox once tell is called for it.
// endAtTTL means that the command ends at the sandbox's ttl. The caller calls deaf when the command has ended; it
// returns the ttl if that ended the command, else nil.
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

// tell lets a registered client get notices from now on. The caller has sent the client that its command has started,
// which must be the first reply.
func (w *deadlines) tell(client *fdsock.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.listeners[client]; l != nil {
		l.told = true
	}
}

// notify sends a notice to all clients that wait for a command. A client whose socket is full misses it.
func (w *deadlines) notify(note string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	msg, err := exactjson.Encode(Reply{Note: note})
	if err != nil {
		return
	}
	for client, l := range w.listeners {
		if l.told {
			_ = client.TrySend(msg) // never blocks
		}
	}
}

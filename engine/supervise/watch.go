package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/watch"
)

// While something runs in a sandbox, its keeper watches the real workspace, and
// tells of its drift: the sandbox by the file /run/snapfs/drift, a DriftReport
// as JSON that is replaced whenever it changes; and every client that asks. The
// watch says when to look again, never what has changed.

const (
	// watchAfter is how long after its start a sandbox is watched: the start of
	// a command, and all of a short one, has the machine to itself.
	watchDelay = time.Second
	// settling is how long after a change others are waited for.
	settleTime = 200 * time.Millisecond
	// rest is how many times as long as looking took is not looked again.
	restFactor = 20
	// pollEvery is how often is looked where the workspace cannot be watched.
	pollEvery = 10 * time.Second
	// noticeEvery is how often who serves a tree is asked what was read of it after it had moved.
	noticeEvery = 2 * time.Second
	// watchMost bounds the directories that are watched.
	maxWatchedDirs = 1 << 14
	// tellMost bounds the paths of a report that is told, and tellBytes their
	// length.
	maxReportPaths, maxReportBytes = 500, 64 << 10
	// driftFile is in /run/snapfs of the sandbox.
	driftFile = "drift"
)

// watchDrift calls each with the drift of a sandbox, and again whenever the drift has changed,
// until ctx ends or each or get fails. get returns the sandbox's record.
func (sv *Manager) watchDrift(ctx context.Context, get func() (*catalog.Record, error), each func(compare.DriftReport) error) error {
	ctx, cancel := context.WithCancel(ctx)
	rec, err := get()
	if err != nil {
		cancel()
		return err
	}
	moved, watching := sv.watchReal(ctx, rec)
	defer watching.Wait()
	defer cancel()
	var last *compare.DriftReport
	for {
		began := time.Now()
		r, err := sv.compare.DriftOfRecord(ctx, rec)
		if err == nil && (last == nil || !last.Equal(&r)) {
			last, err = &r, each(r)
			if err != nil {
				return err
			}
		}
		// Otherwise something has vanished under the look: there is another.
		pause(ctx, restFactor*time.Since(began))
		sv.awaitDrift(ctx, rec, moved, r.Noticed)
		if ctx.Err() != nil {
			return &errs.Error{Op: "watching", Path: rec.Workspace, Kind: errs.ErrInterrupted, Err: ctx.Err()}
		}
		if rec, err = get(); err != nil {
			return err
		}
	}
}

// awaitDrift waits until something may have changed in the workspace, or until a drift
// detector has noticed more than noticed changes.
func (sv *Manager) awaitDrift(ctx context.Context, rec *catalog.Record, moved <-chan struct{}, noticed int) {
	var asking <-chan time.Time // never, where nobody is to be asked
	if len(sv.compare.DriftDetectorsOf(ctx, rec)) > 0 {
		t := time.NewTicker(noticeEvery)
		defer t.Stop()
		asking = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-moved:
			if open {
				pause(ctx, settleTime)
			} else {
				pause(ctx, pollEvery)
			}
			return
		case <-asking:
			if len(sv.compare.Noticed(ctx, rec)) > noticed {
				return
			}
		}
	}
}

// pause sleeps for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watchReal watches a sandbox's real workspace until ctx ends. It sends to moved when
// something may have changed, and closes moved if the workspace cannot be watched.
func (sv *Manager) watchReal(ctx context.Context, rec *catalog.Record) (moved <-chan struct{}, watching *sync.WaitGroup) {
	told, watching := make(chan struct{}, 1), new(sync.WaitGroup)
	skip := func(path string) bool { return hostfs.Within(path, sv.cat.Dir()) }
	if t, ok := compare.HolderOf(rec); ok {
		if b, err := sv.host.BackendOf(ctx, t); err == nil {
			if h, ok := b.(snapshot.Hider); ok {
				ours := append(h.Hidden(), sv.cat.Dir())
				skip = func(path string) bool { return slices.Contains(ours, path) }
			}
		}
	}
	w, err := watch.New(rec.Workspace, skip, maxWatchedDirs)
	if err != nil {
		close(told)
		return told, watching
	}
	stop := context.AfterFunc(ctx, w.Close)
	watching.Go(func() {
		defer close(told)
		for w.Next() == nil {
			select {
			case told <- struct{}{}:
			default: // it has not been heard yet
			}
		}
		if stop() {
			w.Close()
		}
	})
	return told, watching
}

// shortReport returns a report without the paths in hidden, cut to maxReportPaths and
// maxReportBytes.
func shortReport(r compare.DriftReport, hidden []string) compare.DriftReport {
	var paths []compare.DriftPath
	size := 0
	for _, p := range r.Paths {
		if slices.ContainsFunc(hidden, func(h string) bool { return hostfs.Within(p.Path, h) }) {
			continue
		}
		if size += len(p.Path); len(paths) == maxReportPaths || size > maxReportBytes {
			r.More = len(r.Paths) - len(paths)
			break
		}
		paths = append(paths, p)
	}
	if r.Paths = paths; paths == nil {
		r.Paths = []compare.DriftPath{}
	}
	return r
}

// A driftFeed sends the drift of a supervisor's sandbox into the container and to clients.
type driftFeed struct {
	watch func(ctx context.Context, each func(compare.DriftReport) error) error
	timer *time.Timer

	mu      sync.Mutex
	cancel  context.CancelFunc // set once it watches
	ended   bool
	done    sync.WaitGroup
	last    compare.DriftReport
	issue   int // how often there was a new one
	changed chan struct{}
}

// startDriftFeed begins to watch for drift after watchDelay.
func (sv *Manager) startDriftFeed(h *Supervisor, rec *catalog.Record, hidden []string) {
	own := *rec
	get := func() (*catalog.Record, error) {
		if own.Ephemeral {
			return &own, nil
		}
		return sv.cat.Get(own.Name)
	}
	b := &driftFeed{changed: make(chan struct{})}
	b.watch = func(ctx context.Context, each func(compare.DriftReport) error) error {
		return sv.watchDrift(ctx, get, func(r compare.DriftReport) error {
			if text, err := json.Marshal(shortReport(r, hidden)); err == nil {
				_ = h.Container.Notify(driftFile, append(text, '\n')) // the sandbox may have taken the place away
			}
			return each(r)
		})
	}
	b.timer = time.AfterFunc(watchDelay, b.begin)
	h.drift = b
}

// begin starts the watch, unless it runs already or has ended.
func (b *driftFeed) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.cancel != nil {
		return
	}
	var ctx context.Context
	ctx, b.cancel = context.WithCancel(context.Background())
	b.done.Go(func() {
		_ = b.watch(ctx, func(r compare.DriftReport) error { // it ends with the sandbox
			b.mu.Lock()
			defer b.mu.Unlock()
			b.last = shortReport(r, nil)
			b.issue++
			close(b.changed)
			b.changed = make(chan struct{})
			return nil
		})
	})
}

// stop ends the watch. The caller calls wait next.
func (b *driftFeed) stop() {
	b.timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if b.cancel != nil {
		b.cancel()
	}
}

// wait waits until the watch has ended.
func (b *driftFeed) wait() { b.done.Wait() }

// latest returns the last report, its number, and a channel that the next report closes.
func (b *driftFeed) latest() (compare.DriftReport, int, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.issue, b.changed
}

// followDrift sends a client each report until the client or the container is gone.
func (h *Supervisor) followDrift(client *fdsock.Conn) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			_, files, err := client.Receive()
			fdsock.CloseAll(files)
			if err != nil {
				return
			}
		}
	}()
	defer func() {
		client.Shutdown() //nolint:errcheck // wakes the other
		<-gone
	}()
	h.drift.begin()
	for told := 0; ; {
		r, issue, changed := h.drift.latest()
		if issue > told {
			if told = issue; !send(client, reply{Drift: &r}) {
				return
			}
		}
		select {
		case <-changed:
		case <-gone:
			return
		}
	}
}

// FollowDrift calls each with the drift of a sandbox, and again whenever the drift has
// changed, until ctx ends (ErrInterrupted), each fails, or the sandbox is removed, which is no
// error. It gets the reports from a running supervisor, which may leave paths out (see
// DriftReport.More); without one this process watches the workspace. Errors: errs.ErrNotFound.
func (sv *Manager) FollowDrift(ctx context.Context, name string, each func(compare.DriftReport) error) error {
	if _, err := sv.cat.Get(name); err != nil {
		return err
	}
	get := func() (*catalog.Record, error) { return sv.cat.Get(name) }
	var failed error
	once := func(r compare.DriftReport) error {
		failed = each(r)
		return failed
	}
	for {
		rec, err := get()
		if err != nil {
			return unlessGone(err)
		}
		conn, err := sv.Dial(ctx, rec)
		if err == nil && conn != nil && receiveDrift(ctx, conn, once) && failed == nil && ctx.Err() == nil {
			continue // the keeper has ended
		}
		if failed != nil {
			return failed
		}
		if err = sv.watchDrift(ctx, get, once); failed != nil {
			return failed
		}
		return unlessGone(err)
	}
}

// unlessGone returns err, or nil if err says that the sandbox was removed.
func unlessGone(err error) error {
	if errors.Is(err, errs.ErrNotFound) {
		return nil
	}
	return err
}

// receiveDrift passes a supervisor's reports to each, and reports whether there was any.
func receiveDrift(ctx context.Context, conn *fdsock.Conn, each func(compare.DriftReport) error) (heard bool) {
	stop := context.AfterFunc(ctx, func() { conn.Shutdown() }) //nolint:errcheck // wakes the one who listens
	defer conn.Close()                                         //nolint:errcheck // all was said
	defer stop()
	msg, err := json.Marshal(Request{Drift: true})
	if err != nil || conn.Send(msg) != nil {
		return false
	}
	for {
		t, files, err := receive(conn)
		fdsock.CloseAll(files)
		if err != nil || t.Drift == nil {
			return heard
		}
		heard = true
		if each(*t.Drift) != nil {
			return heard
		}
	}
}

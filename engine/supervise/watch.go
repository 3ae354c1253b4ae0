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
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/watch"
)

// While a sandbox runs, its supervisor watches the real workspace and reports its drift: inside the
// sandbox in the file /run/snapfs/drift, a DriftReport as JSON that it replaces whenever the drift
// changes, and to each client that asks. The watch says when to compare again, never what changed.

const (
	// watchDelay is the time between the start of a sandbox and the start of its drift watch,
	// which must not slow down the start of a command, nor a short command.
	watchDelay = time.Second
	// settleTime is how long the watch waits for further changes after one, before it
	// compares.
	settleTime = 200 * time.Millisecond
	// restFactor is the shortest time between two comparisons, as a multiple of the last one's
	// duration.
	restFactor = 20
	// pollEvery is the time between comparisons of a workspace that cannot be watched.
	pollEvery = 10 * time.Second
	// noticeEvery is how often the watch polls the server monitors of served trees.
	noticeEvery = 2 * time.Second
	// maxWatchedDirs bounds the number of watched directories.
	maxWatchedDirs = 1 << 14
	// maxReportPaths bounds the paths of a sent report, and maxReportBytes their total length.
	maxReportPaths, maxReportBytes = 500, 64 << 10
	// driftFile is the report's name in /run/snapfs of the sandbox.
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
		// After an error, as of a file that vanished meanwhile, the next comparison tries again.
		pause(ctx, restFactor*time.Since(began))
		sv.awaitDrift(ctx, rec, moved, r.ReadSince)
		if ctx.Err() != nil {
			return &errs.Error{Op: "watching", Path: rec.Workspace, Kind: errs.ErrInterrupted, Err: ctx.Err()}
		}
		if rec, err = get(); err != nil {
			return err
		}
	}
}

// awaitDrift waits until something may have changed in the workspace, or until the backends'
// server monitors have noticed more than noticed changes.
func (sv *Manager) awaitDrift(ctx context.Context, rec *catalog.Record, moved <-chan struct{}, noticed int) {
	var poll <-chan time.Time // nil without drift detectors
	if len(sv.compare.MonitorsOf(ctx, rec)) > 0 {
		t := time.NewTicker(noticeEvery)
		defer t.Stop()
		poll = t.C
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
		case <-poll:
			if len(sv.compare.ReadSince(ctx, rec)) > noticed {
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
	changed, watching := make(chan struct{}, 1), new(sync.WaitGroup)
	skip := func(path string) bool { return hostfs.Within(path, sv.cat.Dir()) }
	if t, ok := compare.WorkspaceTree(rec); ok {
		if b, err := sv.host.BackendOf(ctx, t); err == nil {
			if hidden := b.Facts().Hidden; hidden != "" {
				skip = func(path string) bool { return path == hidden || path == sv.cat.Dir() }
			}
		}
	}
	w, err := watch.New(rec.Workspace, skip, maxWatchedDirs)
	if err != nil {
		close(changed)
		return changed, watching
	}
	stop := context.AfterFunc(ctx, w.Close)
	watching.Go(func() {
		defer close(changed)
		for w.Next() == nil {
			select {
			case changed <- struct{}{}:
			default: // one is pending already
			}
		}
		if stop() {
			w.Close()
		}
	})
	return changed, watching
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
	cancel  context.CancelFunc // set by begin
	ended   bool
	done    sync.WaitGroup
	last    compare.DriftReport
	issue   int // number of the last report
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
				_ = h.Container.Notify(driftFile, append(text, '\n')) // the sandbox may have removed the directory
			}
			return each(r)
		})
	}
	b.timer = time.AfterFunc(watchDelay, b.begin)
	h.drift = b
}

// startManifest reads what the workspace of a sandbox holds, once its container has run for
// watchDelay, until the caller calls stop.
func (sv *Manager) startManifest(rec *catalog.Record) (stop func()) {
	own := *rec
	ctx, cancel := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	runs.Add(1)
	timer := time.AfterFunc(watchDelay, func() {
		defer runs.Done()
		sv.baseline.UpdateManifest(ctx, &own)
	})
	return func() {
		cancel()
		if timer.Stop() {
			runs.Done()
		}
		runs.Wait()
	}
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
		_ = b.watch(ctx, func(r compare.DriftReport) error { // its error is the end of the sandbox
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

// stop ends the watch. The caller then waits for done.
func (b *driftFeed) stop() {
	b.timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if b.cancel != nil {
		b.cancel()
	}
}

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
		client.Shutdown() //nolint:errcheck // wakes the goroutine
		<-gone
	}()
	h.drift.begin()
	for sent := 0; ; {
		r, issue, changed := h.drift.latest()
		if issue > sent {
			if sent = issue; !send(client, Reply{Drift: &r}) {
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
			continue // the supervisor has ended
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
	stop := context.AfterFunc(ctx, func() { conn.Shutdown() }) //nolint:errcheck // wakes receive
	defer conn.Close()                                         //nolint:errcheck // nothing more to send
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

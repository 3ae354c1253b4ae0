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

// While a sandbox runs, its supervisor watches the real workspace and reports its drift: it writes a
// DriftReport as JSON to the file /run/snapfs/drift inside the sandbox whenever the drift changes, and sends
// it to each client that asks. A watched event only triggers a comparison of files.

const (
	// watchDelay is the time between the start of a sandbox and the start of its drift watch, which must not slow
	// down the start of a command, nor a short command.
	watchDelay = time.Second
	// settleTime is how long the drift watch waits after a change for further ones, before it compares files.
	settleTime = 200 * time.Millisecond
	// restFactor bounds the cost of the drift watch: after a comparison of files it rests this many times as long as
	// the comparison took.
	restFactor = 20
	// pollEvery is the time between comparisons that look for drift in a workspace that cannot be watched.
	pollEvery = 10 * time.Second
	// noticeEvery is how often the drift watch asks backends with FUSE servers which real files have changed.
	noticeEvery = 2 * time.Second
	// maxWatchedDirs is how many directories of a real workspace the drift watch watches at most. A workspace
	// with more is compared every pollEvery instead.
	maxWatchedDirs = 1 << 14
	// maxReportPaths bounds the paths in a drift report that is sent, and maxReportBytes their total length.
	// A report only counts the paths beyond.
	maxReportPaths, maxReportBytes = 500, 64 << 10
	// driftFile is the name of the drift report in /run/snapfs inside the sandbox, where its programs read it.
	driftFile = "drift"
)

// watchDrift calls each with the drift of a sandbox, and again whenever the drift has changed, until ctx ends or each
// or get fails. get returns the sandbox's present catalogue entry.
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

// awaitDrift waits until something may have changed in the real workspace: moved receives, or the backends' server
// monitors have noticed more than noticed changed files. If moved is closed because the workspace cannot be watched,
// it waits for pollEvery.
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

// pause sleeps for the time d, or until ctx ends if that is sooner.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watchReal watches a sandbox's real workspace until ctx ends. It sends to moved when something may have changed, and
// closes moved if the workspace cannot be watched.
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

// shortReport returns a drift report without the paths in hidden, which the sandbox must not see, cut to
// maxReportPaths and maxReportBytes.
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

// A driftFeed watches a running sandbox's drift and sends each new report into the sandbox and to clients.
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

// startDriftFeed begins, after watchDelay, to watch for drift of the sandbox, and writes each report without the
// hidden paths into the sandbox.
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

// startManifest updates the baseline's manifest, the list of files of the sandbox's real workspace, once its
// container has run for watchDelay. The update ends when the caller calls stop.
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

// begin starts watching the real tree for drift, unless the watch runs already or has ended.
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

// stop ends the watch for drift. The caller then waits for b.done.
func (b *driftFeed) stop() {
	b.timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if b.cancel != nil {
		b.cancel()
	}
}

// latest returns the last drift report, its number, and a channel that is closed at the next report.
func (b *driftFeed) latest() (compare.DriftReport, int, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.issue, b.changed
}

// followDrift sends a client each new drift report until the client or the container is gone.
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

// FollowDrift calls each with the drift of a sandbox, and again whenever the drift has changed, until ctx ends
// (ErrInterrupted), each fails, or the sandbox is removed, which is no error. The reports come from the running
// supervisor, which may leave paths out (see DriftReport.More). If none runs, this process watches the workspace.
// Errors: errs.ErrNotFound.
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

// unlessGone returns err, or nil if err says that the sandbox was removed, which ends FollowDrift without an error.
func unlessGone(err error) error {
	if errors.Is(err, errs.ErrNotFound) {
		return nil
	}
	return err
}

// receiveDrift passes drift reports from a supervisor on conn to each, and reports whether there was any.
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

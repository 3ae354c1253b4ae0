package drift

import (
	"context"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/watch"
)

const (
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
)

// A Watcher finds the drift of sandboxes: what has changed in their real workspaces since their bases were taken. It
// has no state of its own, so it serves any number of sandboxes at once.
type Watcher struct {
	// Dir is the state directory, in which changes are not drift.
	Dir     string
	Host    *hostfs.Host
	Compare *compare.Comparer
}

// Watch calls each with the drift of a sandbox, and again whenever the drift has changed, until ctx ends or each
// or get fails. get returns the sandbox's present catalogue entry. A watched event only triggers a comparison of files.
func (w *Watcher) Watch(ctx context.Context, get func() (*catalog.Record, error), each func(compare.DriftReport) error) error {
	ctx, cancel := context.WithCancel(ctx)
	rec, err := get()
	if err != nil {
		cancel()
		return err
	}
	moved, watching := w.watchReal(ctx, rec)
	defer watching.Wait()
	defer cancel()
	var last *compare.DriftReport
	for {
		began := time.Now()
		r, err := w.Compare.DriftOfRecord(ctx, rec)
		if err == nil && (last == nil || !last.Equal(&r)) {
			last, err = &r, each(r)
			if err != nil {
				return err
			}
		}
		// After an error, as of a file that vanished meanwhile, the next comparison tries again.
		poll.Sleep(ctx, restFactor*time.Since(began))
		w.awaitDrift(ctx, rec, moved, r.ReadSince)
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
func (w *Watcher) awaitDrift(ctx context.Context, rec *catalog.Record, moved <-chan struct{}, noticed int) {
	var tick <-chan time.Time // nil without server monitors
	if len(w.Compare.MonitorsOf(ctx, rec)) > 0 {
		t := time.NewTicker(noticeEvery)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-moved:
			if open {
				poll.Sleep(ctx, settleTime)
			} else {
				poll.Sleep(ctx, pollEvery)
			}
			return
		case <-tick:
			if len(w.Compare.ReadSince(ctx, rec)) > noticed {
				return
			}
		}
	}
}

// watchReal watches a sandbox's real workspace until ctx ends. It sends to moved when something may have changed, and
// closes moved if the workspace cannot be watched.
func (w *Watcher) watchReal(ctx context.Context, rec *catalog.Record) (moved <-chan struct{}, watching *sync.WaitGroup) {
	changed, watching := make(chan struct{}, 1), new(sync.WaitGroup)
	skip := func(path string) bool { return hostfs.Within(path, w.Dir) }
	if t, ok := compare.WorkspaceTree(rec); ok {
		if b, err := w.Host.BackendOf(ctx, t); err == nil {
			if hidden := b.Facts().Hidden; hidden != "" {
				skip = func(path string) bool { return path == hidden || path == w.Dir }
			}
		}
	}
	events, err := watch.New(rec.Workspace, skip, maxWatchedDirs)
	if err != nil {
		close(changed)
		return changed, watching
	}
	stop := context.AfterFunc(ctx, events.Close)
	watching.Go(func() {
		defer close(changed)
		for events.Next() == nil {
			select {
			case changed <- struct{}{}:
			default: // one is pending already
			}
		}
		if stop() {
			events.Close()
		}
	})
	return changed, watching
}

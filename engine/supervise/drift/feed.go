package drift

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/hostfs"
)

const (
	// Delay is the time between the start of a sandbox and the start of its drift watch, which must not slow down the
	// start of a command, nor a short command.
	Delay = time.Second
	// maxReportPaths bounds the paths in a drift report that is sent, and maxReportBytes their total length.
	// A report only counts the paths beyond.
	maxReportPaths, maxReportBytes = 500, 64 << 10
)

// A Feed watches the drift of one running sandbox, passes each new report on, and stores the last one.
type Feed struct {
	watch func(ctx context.Context, each func(compare.DriftReport) error) error
	timer *time.Timer

	mu      sync.Mutex
	cancel  context.CancelFunc // set by Begin
	ended   bool
	done    sync.WaitGroup
	last    compare.DriftReport
	issue   int // number of the last report
	changed chan struct{}
}

// StartFeed begins, after Delay, to watch for drift of a sandbox; get returns the sandbox's present catalogue entry.
// It calls inside with each report as JSON, without the hidden paths, for the programs of the sandbox. The caller ends
// the feed with Stop and Wait.
func (w *Watcher) StartFeed(get func() (*catalog.Record, error), hidden []string, inside func(report []byte)) *Feed {
	b := &Feed{changed: make(chan struct{})}
	b.watch = func(ctx context.Context, each func(compare.DriftReport) error) error {
		return w.Watch(ctx, get, func(r compare.DriftReport) error {
			if text, err := json.Marshal(shortReport(r, hidden)); err == nil {
				inside(append(text, '\n'))
			}
			return each(r)
		})
	}
	b.timer = time.AfterFunc(Delay, b.Begin)
	return b
}

// Begin starts watching the real tree for drift, unless the watch runs already or has ended.
func (b *Feed) Begin() {
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

// Stop ends the watch for drift. Wait waits for its end.
func (b *Feed) Stop() {
	b.timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if b.cancel != nil {
		b.cancel()
	}
}

// Wait waits, after Stop, until the watch has ended.
func (b *Feed) Wait() { b.done.Wait() }

// Latest returns the last drift report, its number, and a channel that is closed at the next report. The number is 0
// while there is no report yet.
func (b *Feed) Latest() (compare.DriftReport, int, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.issue, b.changed
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

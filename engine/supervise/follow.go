package supervise

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/supervise/drift"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
)

// While a sandbox runs, its supervisor watches the real workspace and reports its drift: it writes a
// DriftReport as JSON to the file /run/snapfs/drift inside the sandbox whenever the drift changes, and sends
// it to each client that asks.

// driftFile is the name of the drift report in /run/snapfs inside the sandbox, where its programs read it.
const driftFile = "drift"

// startDriftFeed begins, after drift.Delay, to watch for drift of the sandbox, and writes each report without the
// hidden paths into the sandbox.
func (sv *Manager) startDriftFeed(h *Supervisor, rec *catalog.Record, hidden []string) {
	own := *rec
	get := func() (*catalog.Record, error) {
		if own.Ephemeral {
			return &own, nil
		}
		return sv.cat.Get(own.Name)
	}
	h.drift = sv.drift.StartFeed(get, hidden, func(report []byte) {
		_ = h.Container.Notify(driftFile, report) // the sandbox may have removed the directory
	})
}

// startManifest updates the baseline's manifest, the list of files of the sandbox's real workspace, once its
// container has run for drift.Delay. The update ends when the caller calls stop.
func (sv *Manager) startManifest(rec *catalog.Record) (stop func()) {
	own := *rec
	ctx, cancel := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	runs.Add(1)
	timer := time.AfterFunc(drift.Delay, func() {
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
	h.drift.Begin()
	for sent := 0; ; {
		r, issue, changed := h.drift.Latest()
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
		if err = sv.drift.Watch(ctx, get, once); failed != nil {
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
	msg, err := exactjson.Encode(Request{Drift: true})
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

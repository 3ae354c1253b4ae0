package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
)

// Stop ends every process of a sandbox, its keeper included. One that stands still is
// woken for it, and one that has not ended after 30 seconds is killed; what it leaves, the next
// command mends. A command that was asked for before and has not begun yet does not begin any
// more. Errors: errs.ErrNotFound, ErrInterrupted.
func (sv *Manager) Stop(ctx context.Context, name string) error {
	if _, err := sv.cat.Get(name); err != nil {
		return err
	}
	err := sv.bumpStops(name) // before it looks for a keeper: see [host.outdated]
	if err != nil && !errors.Is(err, errs.ErrNoSpace) {
		return err
	}
	rec, err := sv.cat.Get(name)
	if err != nil {
		return err
	}
	if rec.Supervisor == nil {
		_, err = sv.RequestEnd(ctx, rec, Request{Stop: true})
		return err
	}
	defer escalate(*rec.Supervisor)()
	_, err = sv.RequestEnd(ctx, rec, Request{Stop: true})
	for proc.Alive(*rec.Supervisor) { // until it has settled what the processes wrote
		if ctx.Err() != nil {
			return &errs.Error{Op: "stopping", Path: name, Kind: errs.ErrInterrupted, Err: ctx.Err()}
		}
		time.Sleep(time.Millisecond)
	}
	if errors.Is(err, ErrSilent) {
		return nil // it was killed for that
	}
	return err
}

// errStopped: the sandbox was stopped after a command was asked for, and before it began.
var errStopped = errors.New("it was stopped meanwhile")

// stopsFile is the file of a sandbox whose size is how often it was stopped.
func stopsFile(dir string) string { return filepath.Join(dir, "stops") }

// bumpStops says that whoever has asked for a command in a sandbox is to ask again. Of two
// at once one may be counted: both come after whoever has asked.
func (sv *Manager) bumpStops(name string) error {
	path := stopsFile(sv.cat.Path(name))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return stopsError(name, err)
	}
	info, err := f.Stat()
	if err == nil {
		err = f.Truncate(info.Size() + 1) // takes no room
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return stopsError(name, err)
	}
	return nil
}

// countStops answers with how often the sandbox of a directory was stopped.
func countStops(dir string) (int64, error) {
	info, err := os.Lstat(stopsFile(dir))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, stopsError(filepath.Base(dir), err)
	}
	return info.Size(), nil
}

func stopsError(name string, err error) error {
	return &errs.Error{Op: "stopping", Path: name, Kind: errs.KindOfFile(err), Err: err}
}

// stoppedSince is the error of a command that was asked for when a sandbox had been
// stopped so many times, where that is over.
func (sv *Manager) stoppedSince(name string, times int64) error {
	now, err := countStops(sv.cat.Path(name))
	if err == nil && now > times {
		err = &errs.Error{Op: "entering", Path: name, Kind: errs.ErrInterrupted, Err: errStopped}
	}
	return err
}

// stoppedSince: the sandbox was stopped after a command was asked for. Who stops it later reaches
// this keeper, which serves by now, and ends the box.
func (h *Supervisor) stoppedSince(w execRequest) bool {
	if w.Stops == nil { // by another version
		return false
	}
	now, err := countStops(filepath.Dir(h.socket))
	return err == nil && now > *w.Stops
}

// abandon is the end of a command that was not to begin any more: where a keeper was
// started for it, that ends, too. The caller holds the sandbox's lock.
func (sv *Manager) abandon(ctx context.Context, h *catalog.Locked, err error) error {
	_, lerr := sv.RequestEnd(context.WithoutCancel(ctx), h.Record, Request{Leave: true})
	return errors.Join(err, lerr)
}

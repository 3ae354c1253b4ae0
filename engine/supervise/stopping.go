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

// Stop ends every process of a sandbox and its supervisor. It wakes a SIGSTOPped supervisor and kills one that has
// not ended after 30 seconds; the next command repairs the state that a killed supervisor leaves. Commands requested
// before Stop that have not begun do not begin. Errors: errs.ErrNotFound, ErrInterrupted.
func (sv *Manager) Stop(ctx context.Context, name string) error {
	if _, err := sv.cat.Get(name); err != nil {
		return err
	}
	err := sv.bumpStops(name) // before it looks for a supervisor: see [Supervisor.stoppedSince]
	if err != nil && !errors.Is(err, errs.ErrNoSpace) {
		return err
	}
	rec, err := sv.cat.Get(name)
	if err != nil {
		return err
	}
	return sv.end(ctx, rec)
}

// end ends every process of the sandbox of rec and its supervisor, as [Manager.Stop] does. A command that waits for the
// sandbox's lock meanwhile begins afterwards.
func (sv *Manager) end(ctx context.Context, rec *catalog.Record) error {
	if rec.Supervisor == nil {
		_, err := sv.RequestEnd(ctx, rec, Request{Stop: true})
		return err
	}
	announced := sv.cat.UnderWay(catalog.Supervising, rec.ID) // before the request: a later one is of another container
	done := sv.standby.Done(rec.Name)
	defer escalate(*rec.Supervisor)()
	asked := time.Now()
	_, err := sv.RequestEnd(ctx, rec, Request{Stop: true})
	// A look at the process costs more than one at its announcement, and few are killed.
	const most = 4 * time.Millisecond
	wait := 100 * time.Microsecond
	if done != nil { // the pool reports its end
		wait = most
	}
	for ; supervises(announced, wait == most); wait = min(2*wait, most) { // until it has synced the trees
		if ctx.Err() != nil {
			return &errs.Error{Op: "stopping", Path: rec.Name, Kind: errs.ErrInterrupted, Err: ctx.Err()}
		}
		select {
		case <-done:
			done, wait = nil, 100*time.Microsecond
		case <-time.After(wait):
		}
		if err == nil && time.Since(asked) > replyPoll { // a supervisor is in the record before it has its socket
			asked = time.Now()
			_, err = sv.RequestEnd(ctx, rec, Request{Stop: true})
		}
	}
	if errors.Is(err, ErrSilent) {
		return nil // escalate has killed it
	}
	return err
}

// supervises reports whether the process that announced to supervise a sandbox still does. That process may be alive
// and supervise another sandbox by now. announced may be nil: none does. Only if thorough is set, supervises notices that
// the process was killed.
func supervises(announced *catalog.Intent, thorough bool) bool {
	return announced != nil && announced.Stands() && (!thorough || proc.Alive(announced.Owner))
}

// errStopped means that a sandbox was stopped after a command was requested and before the command began.
var errStopped = errors.New("the sandbox was stopped meanwhile")

// stopsFile returns the path of the file whose size in bytes is the number of times that a sandbox was stopped. dir
// is the sandbox's directory in the state directory.
func stopsFile(dir string) string { return filepath.Join(dir, "stops") }

// bumpStops counts one more stop of a sandbox. Commands that were requested at a lower count are then rejected. Two
// concurrent calls may count only once; all older requests are rejected all the same.
func (sv *Manager) bumpStops(name string) error {
	path := stopsFile(sv.cat.Path(name))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return stopsError(name, err)
	}
	info, err := f.Stat()
	if err == nil {
		err = f.Truncate(info.Size() + 1) // a hole: uses no space
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return stopsError(name, err)
	}
	return nil
}

// countStops returns how often a sandbox was stopped. dir is the sandbox's directory in the state directory.
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

// stoppedSince returns errStopped if a sandbox was stopped since a request, when its stop count was times.
func (sv *Manager) stoppedSince(name string, times int64) error {
	now, err := countStops(sv.cat.Path(name))
	if err == nil && now > times {
		err = &errs.Error{Op: "entering", Path: name, Kind: errs.ErrInterrupted, Err: errStopped}
	}
	return err
}

// stoppedSince reports whether the sandbox was stopped after the command w was requested. A later Stop reaches this
// supervisor by its socket.
func (h *Supervisor) stoppedSince(w execRequest) bool {
	if w.Stops == nil { // from another version
		return false
	}
	now, err := countStops(filepath.Dir(h.socket))
	return err == nil && now > *w.Stops
}

// abandon ends the supervisor of a command that did not begin because the sandbox was stopped, unless other processes
// run in the sandbox. It returns err, the command's error. The caller holds the sandbox's lock.
func (sv *Manager) abandon(ctx context.Context, h *catalog.Locked, err error) error {
	_, lerr := sv.RequestEnd(context.WithoutCancel(ctx), h.Record, Request{Leave: true})
	return errors.Join(err, lerr)
}

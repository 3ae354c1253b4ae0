package baseline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A window begins when a sandbox's container starts. What the sandbox changes
// from then on has the real tree's state of that instant as its original, and not
// that of the fork: the container has only just mounted the real tree. A window
// may begin only if the originals of all earlier changes are recorded, which the
// file windowFile says:
//
//	snapfs window 1
//	2026-11-25T03:00:00.123456789Z open
//
// The second line is when the window began, and "open", or "settled" with the
// boot since which the originals of all changes are recorded. The file is
// replaced without a sync: the boot makes it void after a power loss.
const (
	windowFile = "window"
	windowHead = "snapfs window 1\n"
	settled    = "settled "
)

// window reads the state of a sandbox's window; the zero time if none has begun.
func (bl *Recorder) window(rec *catalog.Record) (since time.Time, state string) {
	data, err := os.ReadFile(filepath.Join(bl.BaseDir(rec.Name, rec.Refreshed), windowFile))
	if err != nil {
		return time.Time{}, ""
	}
	line, ok := strings.CutPrefix(string(data), windowHead)
	when, state, whole := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if since, err = time.Parse(time.RFC3339Nano, when); err != nil || !ok || !whole {
		return time.Time{}, ""
	}
	return since, state
}

// Since returns the instant from which the real tree of a live base counts: that
// of the base or, if it is later, the beginning of the sandbox's window.
func (bl *Recorder) Since(rec *catalog.Record, t *catalog.Tree) time.Time {
	if since, _ := bl.window(rec); since.After(t.Taken) {
		return since
	}
	return t.Taken
}

// OpenWindow begins a window, unless originals of earlier changes may be missing.
// The caller holds the sandbox's lock, and nothing has run yet in the container
// that it has mounted. Cost: a small file.
func (bl *Recorder) OpenWindow(rec *catalog.Record) error {
	if !live(rec) {
		return nil
	}
	since, state := bl.window(rec)
	if boot, err := proc.BootID(); err == nil && (rec.Untouched || state == settled+boot) {
		since = vfs.Now().Add(-1)
	}
	return bl.saveWindow(rec, since, "open")
}

// Settle does the same as Record and notes that the originals of all changes of
// the sandbox are recorded, if they are. The caller holds the sandbox's lock, and
// nothing runs in the sandbox.
func (bl *Recorder) Settle(ctx context.Context, rec *catalog.Record) {
	if rec.Ephemeral || !live(rec) || !bl.record(ctx, rec) {
		return
	}
	boot, err := proc.BootID()
	if err == nil {
		since, _ := bl.window(rec)
		err = bl.saveWindow(rec, since, settled+boot)
	}
	if err != nil {
		bl.notice("the baseline of sandbox " + rec.Name + " was not recorded: " + err.Error())
	}
}

// record is Record, and reports whether the originals of all changes are
// recorded.
func (bl *Recorder) record(ctx context.Context, rec *catalog.Record) bool {
	changed, err := bl.TryRecord(ctx, rec)
	if err != nil {
		if !errors.Is(err, errs.ErrInterrupted) {
			bl.notice("the baseline of sandbox " + rec.Name + " was not recorded: " + err.Error())
		}
		return false
	}
	for i := range rec.Trees {
		if _, listed := changed[rec.Trees[i].Path]; !listed && !rec.Trees[i].Frozen {
			return false
		}
	}
	k, err := bl.Read(rec)
	return err == nil && !k.full()
}

// saveWindow replaces the file of the window.
func (bl *Recorder) saveWindow(rec *catalog.Record, since time.Time, state string) error {
	dir := bl.BaseDir(rec.Name, rec.Refreshed)
	if err := makeDir(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, windowFile)
	err := os.WriteFile(path+".new", []byte(windowHead+since.UTC().Format(time.RFC3339Nano)+" "+state+"\n"), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errs.With("recording the baseline", path, err)
	}
	return nil
}

// live reports whether a sandbox has a live base.
func live(rec *catalog.Record) bool {
	for i := range rec.Trees {
		if !rec.Trees[i].Frozen {
			return true
		}
	}
	return false
}

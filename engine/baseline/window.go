package baseline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A window says since when the real tree, not the state at the base's time, has the originals of the files
// that a sandbox changes. A new window begins when the sandbox's container starts and mounts the live base
// anew. The originals of all earlier changes must be stored by then. The file is
//
//	snapfs window 1
//	2026-11-25T03:00:00.123456789Z open
//	"/mnt/disk"
//
// The second line is the beginning, and "open", or "settled" with the boot during which all originals were
// stored. Each further line is a tree for which no window may begin: it was not mounted when the others were
// stored. The file is replaced without a sync: another boot makes "settled" void after a power loss.
type window struct {
	since   time.Time
	state   string
	without []string
}

const (
	windowFile = "window"
	windowHead = "snapfs window 1\n"
	opened     = "open"
	settled    = "settled "
)

// readWindow reads the sandbox's window file, which says from which time on the real tree has the originals
// of the files that the sandbox changes; the zero window if the file does not exist.
func (bl *Recorder) readWindow(rec *catalog.Record) (w window) {
	data, err := os.ReadFile(filepath.Join(bl.BaseDir(rec.Name, rec.Refreshed), windowFile))
	body, ok := strings.CutPrefix(string(data), windowHead)
	if err != nil || !ok {
		return window{}
	}
	line, body, _ := strings.Cut(body, "\n")
	when, state, _ := strings.Cut(line, " ")
	if w.since, err = time.Parse(time.RFC3339Nano, when); err != nil {
		return window{}
	}
	w.state = state
	for line := range strings.Lines(body) {
		tree, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return window{}
		}
		w.without = append(w.without, tree)
	}
	return w
}

// saveWindow replaces the sandbox's window file, which says from which time on the real tree has the
// originals of the files that the sandbox changes.
func (bl *Recorder) saveWindow(rec *catalog.Record, w window) error {
	dir := bl.BaseDir(rec.Name, rec.Refreshed)
	if err := makeDir(dir); err != nil {
		return err
	}
	data := fmt.Appendf([]byte(windowHead), "%s %s\n", w.since.UTC().Format(time.RFC3339Nano), w.state)
	for _, tree := range w.without {
		data = append(strconv.AppendQuote(data, tree), '\n')
	}
	path := filepath.Join(dir, windowFile)
	err := os.WriteFile(path+".new", data, 0o600)
	if err == nil {
		_ = os.Remove(path) // ext4 writes a file to disk that replaces another one; none is a window that is not known
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errs.With("recording the baseline", path, err)
	}
	return nil
}

// Since returns the instant whose real files are the originals of the sandbox's changes in a live tree: the
// time of the base or, if it is later, the start of the sandbox's last container (its window).
func (bl *Recorder) Since(rec *catalog.Record, t *catalog.Tree) time.Time {
	if w := bl.readWindow(rec); w.since.After(t.Taken) && !slices.Contains(w.without, t.Path) {
		return w.since
	}
	return t.Taken
}

// OpenWindow begins a window: from now on the real tree has the originals of the files that the sandbox
// changes. It does not if originals of earlier changes are missing and cannot be recorded. The caller holds
// the sandbox's lock and has mounted the container, in which nothing has run yet. It waits for reading, the
// listing of the workspace, for at most quickPatience. Cost: a small file; that of Record after a supervisor
// that was killed.
func (bl *Recorder) OpenWindow(ctx context.Context, rec *catalog.Record, reading *Reading) error {
	if !live(rec) {
		return nil
	}
	w := bl.readWindow(rec)
	boot, err := proc.BootID()
	if err == nil && (rec.Untouched || w.state == settled+boot || bl.recordAll(ctx, rec, &w)) {
		reading.await(ctx)
		w.since = vfs.Now().Add(-1)
	}
	w.state = opened
	err = bl.saveWindow(rec, w)
	if err == nil {
		reading.opened(ctx)
	}
	return err
}

// Settle stores originals as Record does. If those of all changes of the sandbox are stored, it notes that, so that
// the next start of the sandbox need not look for missing ones. The caller holds the sandbox's lock, and nothing runs
// in the sandbox.
func (bl *Recorder) Settle(ctx context.Context, rec *catalog.Record) {
	w := bl.readWindow(rec)
	if rec.Ephemeral || !live(rec) || !bl.recordAll(ctx, rec, &w) {
		return
	}
	boot, err := proc.BootID()
	if err == nil {
		w.state = settled + boot
		err = bl.saveWindow(rec, w)
	}
	if err != nil {
		bl.notice("the baseline of sandbox " + rec.Name + " was not recorded: " + err.Error())
	}
}

// recordAll stores the originals of all files that the sandbox has changed, as Record does. It returns true if all
// are stored. Trees whose changes cannot be listed, as one that is not mounted, do not count: it adds them to
// w.without.
func (bl *Recorder) recordAll(ctx context.Context, rec *catalog.Record, w *window) bool {
	changed, err := bl.TryRecord(ctx, rec)
	if err != nil {
		if !errors.Is(err, errs.ErrInterrupted) {
			bl.notice("the baseline of sandbox " + rec.Name + " was not recorded: " + err.Error())
		}
		return false
	}
	for i := range rec.Trees {
		t := &rec.Trees[i]
		if _, listed := changed[t.Path]; !listed && !t.Frozen && !slices.Contains(w.without, t.Path) {
			w.without = append(w.without, t.Path)
		}
	}
	k, err := bl.Read(rec)
	return err == nil && !k.full()
}

// live reports whether a sandbox has a live base: one that is the real tree itself, so that drift changes it,
// and not a copy.
func live(rec *catalog.Record) bool {
	return slices.ContainsFunc(rec.Trees, func(t catalog.Tree) bool { return !t.Frozen })
}

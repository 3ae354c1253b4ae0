package baseline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
//	snapfs window 2
//	2026-11-25T03:00:00.123456789Z stored open
//	"/mnt/disk"
//	sum 0badc0de
//
// The second line is the beginning; "stored", or "none" if no originals were stored yet; and "open", or
// "settled" with the boot during which all originals were stored. Each further line is a tree for which no
// window may begin: it was not mounted when the others were stored. The last line has a checksum. The file is
// replaced without a sync: another boot makes "settled" void after a power loss. The older format, windowOld,
// has neither a checksum nor the second word.
type window struct {
	since   time.Time
	state   string
	without []string
}

const (
	windowFile = "window"
	windowHead = "snapfs window 2\n"
	windowOld  = "snapfs window 1\n"
	windowSum  = "sum "
	opened     = "open"
	settled    = "settled "

	// withOriginals and noOriginals are the second word of a window's file.
	withOriginals = "stored"
	noOriginals   = "none"
)

// readWindow reads the sandbox's window file, which says from which time on the real tree has the originals
// of the files that the sandbox changes; the zero window if the file does not exist or is damaged, or if the
// originals that were stored before the window began are missing. Without them, a file of the user that is older
// than the window would be taken for the original.
func (bl *Recorder) readWindow(rec *catalog.Record) window {
	dir := bl.BaseDir(rec.Name, rec.Refreshed)
	data, err := os.ReadFile(filepath.Join(dir, windowFile))
	if err != nil {
		return window{}
	}
	w, stored, ok := parseWindow(data)
	if !ok || stored && !hasOriginals(dir) {
		return window{}
	}
	return w
}

// parseWindow returns the window that data, the content of its file, describes. stored is set if originals
// were stored before it began. ok is false for damaged data.
func parseWindow(data []byte) (w window, stored, ok bool) {
	body, old := strings.CutPrefix(string(data), windowOld)
	if !old {
		lines, sum, whole := strings.Cut(string(data), "\n"+windowSum)
		if body, ok = strings.CutPrefix(lines+"\n", windowHead); !ok || !whole || sum != checksum([]byte(lines+"\n"))+"\n" {
			return window{}, false, false
		}
	}
	line, body, _ := strings.Cut(body, "\n")
	when, state, _ := strings.Cut(line, " ")
	if !old {
		word, rest, _ := strings.Cut(state, " ")
		stored, state = word == withOriginals, rest
	}
	var err error
	if w.since, err = time.Parse(time.RFC3339Nano, when); err != nil {
		return window{}, false, false
	}
	w.state = state
	for line := range strings.Lines(body) {
		tree, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return window{}, false, false
		}
		w.without = append(w.without, tree)
	}
	return w, stored, true
}

// hasOriginals reports whether dir, the directory for the originals of a sandbox, has the list of them.
func hasOriginals(dir string) bool {
	for _, name := range []string{baselineFile, baselineJSON} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// encode returns the content of the window's file. stored is set if originals are stored already.
func (w window) encode(stored bool) []byte {
	word := noOriginals
	if stored {
		word = withOriginals
	}
	data := fmt.Appendf([]byte(windowHead), "%s %s %s\n", w.since.UTC().Format(time.RFC3339Nano), word, w.state)
	for _, tree := range w.without {
		data = append(strconv.AppendQuote(data, tree), '\n')
	}
	return fmt.Appendf(data, "%s%s\n", windowSum, checksum(data))
}

// saveWindow replaces the sandbox's window file, which says from which time on the real tree has the
// originals of the files that the sandbox changes.
func (bl *Recorder) saveWindow(rec *catalog.Record, w window) error {
	dir := bl.BaseDir(rec.Name, rec.Refreshed)
	if err := makeDir(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, windowFile)
	err := os.WriteFile(path+".new", w.encode(hasOriginals(dir)), 0o600)
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

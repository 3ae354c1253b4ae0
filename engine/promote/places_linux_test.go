package promote_test

import (
	"errors"
	"os"
	"testing"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/projquota"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// An undo on a disk that is read-only is refused as a whole: the next command does not continue it.
func TestAnUndoOnAReadOnlyDiskIsRefused(t *testing.T) {
	treetest.NeedRoot(t)
	w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10)}, treetest.Script{do(treetest.Unlink, "a", ""), file("a", 2, 10)})
	r, at := w.promoted(t, "s", w.frozen()), w.real.Name()
	must(t, unix.Mount(at, at, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // after a failure
	must(t, unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	if _, err := promote.Undo(t.Context(), w.state(), r.ID); !errors.Is(err, errs.ErrReadOnly) {
		t.Errorf("got %v", err)
	}
	must(t, unix.Unmount(at, 0))
	if all, err := promote.Recover(t.Context(), w.state()); len(all) > 0 || err != nil {
		t.Errorf("recovered %v, %v", all, err)
	}
	if _, err := promote.Undo(t.Context(), w.state(), r.ID); err != nil {
		t.Errorf("later: %v", err)
	}
}

// A directory that belongs to a quota project takes no file by a rename from outside of it (EXDEV), so that new
// versions must be made inside.
func TestADirectoryOfAQuotaProjectIsPromotedTo(t *testing.T) {
	treetest.NeedRoot(t)
	for _, place := range []string{"real", "real/d"} {
		before := treetest.Script{do(treetest.Mkdir, "d", ""), file("d/f", 1, 10), file("g", 2, 10)}
		after := treetest.Script{do(treetest.Unlink, "d/f", ""), file("d/f", 3, 10), file("d/new", 4, 10), file("new", 5, 10)}
		w := newWorld(t, treetest.Small(t, "xfs", 320<<20), before, after)
		for _, path := range []string{place, "real/d", "real/d/f", "real/g"} { // as xfs_quota -c project does
			f, err := os.Open(w.top + "/" + path)
			must(t, err)
			if place == "real" || path != "real/g" {
				must(t, projquota.Set(int(f.Fd()), 7, path == place || path == "real/d"))
			}
			must(t, f.Close())
		}
		old := manifest(t, w)
		r := w.promoted(t, "s", w.frozen())
		if _, err := promote.Undo(t.Context(), w.state(), r.ID); err != nil {
			t.Errorf("%s: %v", place, err)
		}
		if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
			t.Errorf("%s: %q", place, l)
		}
	}
}

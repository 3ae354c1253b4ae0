package promote_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A promotion that was killed, and whose disk has become read-only since, waits for it. It is no
// error, and the recovery of another target goes on.
func TestAPromotionOnAReadOnlyDiskHoldsUpNoOther(t *testing.T) {
	treetest.NeedRoot(t)
	steps := func(w *world) {
		t.Helper()
		for step := 1; ; step++ { // until the new tree is half there
			if !killed(t, w, "apply", step) {
				t.Fatal("never killed between moving and committing")
			}
			if _, err := os.Lstat(w.real.Name() + "/a"); err != nil {
				return
			}
			_, err := promote.Recover(t.Context(), w.state())
			must(t, err)
		}
	}
	before := treetest.Script{file("a", 1, 10)}
	after := treetest.Script{do(treetest.Unlink, "a", "")}
	state, disk := treetest.Dir(t), treetest.Small(t, "tmpfs", 16<<20)
	var worlds []*world
	for _, top := range []string{disk, treetest.Dir(t)} {
		must(t, os.Symlink(state, filepath.Join(top, "state")))
		w := newWorld(t, top, before, after)
		worlds = append(worlds, w)
	}
	steps(worlds[0])
	remount := func(flags uintptr) {
		t.Helper()
		must(t, unix.Mount("", disk, "", unix.MS_REMOUNT|flags, ""))
	}
	remount(unix.MS_RDONLY)
	steps(worlds[1])
	list, err := promote.Recover(t.Context(), state)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v %v", list, err)
	}
	for _, r := range list {
		if readOnly := r.Path == worlds[0].real.Name(); readOnly != errors.Is(r.Waits, unix.EROFS) || readOnly != (r.Journal != "") {
			t.Errorf("%s waits for %v, journal %q", r.Path, r.Waits, r.Journal)
		}
	}
	if _, err := os.Lstat(worlds[1].real.Name() + "/a"); err != nil {
		t.Error("the other target was not reverted:", err)
	}
	remount(0)
	list, err = promote.Recover(t.Context(), state)
	if err != nil || len(list) != 1 || list[0].Waits != nil {
		t.Errorf("writable again: %+v %v", list, err)
	}
	if _, err := os.Lstat(worlds[0].real.Name() + "/a"); err != nil {
		t.Error("the old tree is not back:", err)
	}
}

package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// frozenAndLive runs a test as root on a live base, and on the frozen ones of plain and btrfs. backend is the one to ask for.
func frozenAndLive(t *testing.T, test func(t *testing.T, b *bench, backend string)) {
	asRoot(t, func(t *testing.T, b *bench) { test(t, b, "") })
	t.Run("plain", func(t *testing.T) {
		treetest.NeedRoot(t)
		work := treetest.Small(t, "ext4", 64<<20) // all of it is copied
		if err := os.RemoveAll(filepath.Join(work, "lost+found")); err != nil {
			t.Fatal(err)
		}
		test(t, benchIn(t, work, treetest.Dir(t)), "plain")
	})
	onBtrfs(t, func(t *testing.T, b *bench) { test(t, b, "") })
}

// makes makes a sandbox on a backend, "" for any, which is removed when the test ends.
func (b *bench) makes(name, backend string) {
	b.t.Helper()
	req := b.request()
	req.Name, req.Backend = name, backend
	if _, err := b.New(b.t.Context(), req); err != nil {
		b.t.Fatal(err)
	}
	b.removeLater(name)
}

// moved is what promotedThenMoved leaves in the file that the sandbox moves.
var moved = lines(12, map[int]string{1: "first\n", 5: "second\n"})

// promotedThenMoved makes a sandbox "s" that promotes a new file "old", with the lines moved, and then moves it to "new",
// with one more line. Meanwhile the user writes another "new". So the answer to the conflict at "new" decides about both.
func (b *bench) promotedThenMoved(backend string) {
	b.t.Helper()
	b.write("text", lines(12, nil))
	b.write("../content", moved)
	tick()
	b.makes("s", backend)
	b.in("s", "cp ../content old")
	b.promoteStopped("s")
	b.in("s", "mv old new; echo third >> new")
	b.halt("s")
	b.write("new", "the user's\n")
	tick()
}

// wantMoved checks that the real tree has both files of promotedThenMoved, as if the sandbox had not moved one.
func (b *bench) wantMoved(when string) {
	b.t.Helper()
	for name, want := range map[string]string{"old": moved, "new": "the user's\n"} {
		if got, err := os.ReadFile(filepath.Join(b.workspace, name)); err != nil || string(got) != want {
			b.t.Errorf("%s, %s has %q, %v; want %q", when, name, got, err, want)
		}
	}
}

// TestAnswerDecidesAboutBothEndsOfAPromotedFile: a sandbox promotes a file and moves it, to a path where the user writes
// another file. If the user's file stays, the moved one stays at its old path, or it would be nowhere.
func TestAnswerDecidesAboutBothEndsOfAPromotedFile(t *testing.T) {
	frozenAndLive(t, answerDecidesAboutBothEnds)
}

func answerDecidesAboutBothEnds(t *testing.T, b *bench, backend string) {
	b.promotedThenMoved(backend)
	plan, err := b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})
	if err != nil || len(plan.Conflicts) != 1 || len(plan.Steps) != 0 {
		t.Errorf("the plan is %+v, %v; want one conflict for both ends", plan, err)
	}
	if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{Theirs: []string{"new"}}); err != nil {
		t.Fatal(err)
	}
	b.wantMoved("answered")
	b.in("s", "echo fourth > other")
	b.promoteStopped("s")
	b.wantMoved("promoted again")
	b.in("s", "echo fifth > old")
	b.halt("s")
	if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); !errors.Is(err, errs.ErrConflict) {
		t.Errorf("another file at the old path: %v", err)
	}
	b.wantMoved("refused")
}

// TestRefreshKeepsBothEndsOfAPromotedFile: the same answer to a refresh, at once or later, of the sandbox or of a fork.
func TestRefreshKeepsBothEndsOfAPromotedFile(t *testing.T) {
	frozenAndLive(t, refreshKeepsBothEnds)
}

func refreshKeepsBothEnds(t *testing.T, b *bench, backend string) {
	b.promotedThenMoved(backend)
	if _, err := b.Fork(t.Context(), "s", "", "k"); err != nil {
		t.Fatal(err)
	}
	b.removeLater("k")
	refresh := func(name string, conflicts int, theirs ...string) {
		t.Helper()
		r, err := b.Reconcile.Refresh(t.Context(), name, reconcile.RefreshOptions{Theirs: theirs})
		if err != nil || len(r.Conflicts) != conflicts {
			t.Fatalf("refreshing %s: %+v, %v; want %d conflicts", name, r, err, conflicts)
		}
	}
	refresh("k", 0, ".")
	refresh("s", 1)
	refresh("s", 0, "new")
	for _, name := range []string{"k", "s"} {
		if got := b.in(name, "cat old new"); got != moved+"the user's\n" {
			t.Errorf("refreshed, %s has %q", name, got)
		}
		b.promoteStopped(name)
		b.wantMoved("refreshed, with " + name + " promoted")
	}
}

// TestAnswerToPartOfAPromotionDecidesAboutBothEnds: the user answers the conflict while promoting its path alone. The
// next promotion of everything must not carry out the other half of the move.
func TestAnswerToPartOfAPromotionDecidesAboutBothEnds(t *testing.T) {
	frozenAndLive(t, answerToPartDecidesAboutBothEnds)
}

func answerToPartDecidesAboutBothEnds(t *testing.T, b *bench, backend string) {
	b.promotedThenMoved(backend)
	b.in("s", "echo fourth > other")
	b.halt("s")
	o := reconcile.PromoteOptions{Theirs: []string{"new"}}
	o.Only = []string{"new"}
	if _, err := b.Reconcile.Promote(t.Context(), "s", o); err != nil {
		t.Fatal(err)
	}
	b.wantMoved("answered")
	b.promoteStopped("s")
	b.wantMoved("promoted again")
	if got := b.read("other"); !strings.Contains(got, "fourth") {
		t.Errorf("the rest has %q", got)
	}
}

// TestAnswerAboutADirectoryItselfLeavesItsEntries: the user answers a conflict about the mode of a directory while
// promoting another path. The sandbox's new file in the directory is still to be promoted afterwards.
func TestAnswerAboutADirectoryItselfLeavesItsEntries(t *testing.T) {
	frozenAndLive(t, answerAboutADirectoryLeavesItsEntries)
}

func answerAboutADirectoryLeavesItsEntries(t *testing.T, b *bench, backend string) {
	b.mkdir("d")
	b.write("d/f", "f\n")
	tick()
	b.makes("s", backend)
	b.in("s", "chmod 750 d; echo inside > d/new; echo other > other")
	b.halt("s")
	if err := os.Chmod(filepath.Join(b.workspace, "d"), 0o711); err != nil {
		t.Fatal(err)
	}
	tick()
	o := reconcile.PromoteOptions{Theirs: []string{"d"}}
	o.Only = []string{"other"}
	if _, err := b.Reconcile.Promote(t.Context(), "s", o); err != nil {
		t.Fatal(err)
	}
	b.promoteStopped("s")
	if got := b.read("d/new"); got != "inside\n" {
		t.Errorf("the new file has %q", got)
	}
	if st, err := os.Stat(filepath.Join(b.workspace, "d")); err != nil || st.Mode().Perm() != 0o711 {
		t.Errorf("the directory is %v, %v", st, err)
	}
}

// TestAnswerRestoresAFileMovedOverAnother: the sandbox moves one file over another that the user changes meanwhile. If
// the user's change stays, the moved file stays at its old path. A file that the sandbox only deleted stays deleted.
func TestAnswerRestoresAFileMovedOverAnother(t *testing.T) {
	frozenAndLive(t, answerRestoresAFileMovedOverAnother)
}

func answerRestoresAFileMovedOverAnother(t *testing.T, b *bench, backend string) {
	b.write("old", moved)
	b.write("new", lines(12, nil))
	b.write("edited", lines(12, nil))
	b.write("deleted", lines(12, map[int]string{3: "deleted\n"}))
	tick()
	b.makes("s", backend)
	b.in("s", "mv old new; echo third >> new; sed -i 's/line l/mine/' edited; rm deleted")
	b.halt("s")
	b.write("new", "the user's\n")
	b.write("edited", lines(12, map[int]string{11: "real\n"}))
	tick()
	if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{Theirs: []string{"."}}); err != nil {
		t.Fatal(err)
	}
	b.wantMoved("answered")
	if _, err := os.Lstat(filepath.Join(b.workspace, "deleted")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the deleted file: %v", err)
	}
}

// TestLaterAnswerRestoresAFileMovedToAConflict: a refresh leaves a conflict, and the sandbox then moves another file to
// its path. The answer with the real version gives up what is there, but not the moved file. That is one of the base, or
// one that the sandbox promoted after the refresh.
func TestLaterAnswerRestoresAFileMovedToAConflict(t *testing.T) {
	frozenAndLive(t, func(t *testing.T, b *bench, backend string) { laterAnswerRestoresAMovedFile(t, b, backend, false) })
	t.Run("promoted", func(t *testing.T) {
		frozenAndLive(t, func(t *testing.T, b *bench, backend string) { laterAnswerRestoresAMovedFile(t, b, backend, true) })
	})
}

func laterAnswerRestoresAMovedFile(t *testing.T, b *bench, backend string, promoted bool) {
	b.write("../content", moved)
	if !promoted {
		b.write("old", moved)
	}
	b.write("new", lines(12, nil))
	tick()
	b.makes("s", backend)
	b.in("s", "rm new")
	b.halt("s")
	b.write("new", "the user's\n")
	tick()
	if r, err := b.Reconcile.Refresh(t.Context(), "s", reconcile.RefreshOptions{}); err != nil || len(r.Conflicts) != 1 {
		t.Fatalf("refresh: %+v, %v", r, err)
	}
	if promoted {
		b.in("s", "cp ../content old")
		b.halt("s")
		var o reconcile.PromoteOptions
		o.Only = []string{"old"}
		if _, err := b.Reconcile.Promote(t.Context(), "s", o); err != nil {
			t.Fatal(err)
		}
	}
	b.in("s", "mv old new; echo third >> new")
	b.halt("s")
	if _, err := b.Reconcile.Refresh(t.Context(), "s", reconcile.RefreshOptions{Theirs: []string{"new"}}); err != nil {
		t.Fatal(err)
	}
	if got := b.in("s", "cat old new"); got != moved+"the user's\n" {
		t.Errorf("answered, the sandbox has %q", got)
	}
	b.promoteStopped("s")
	b.wantMoved("promoted")
}

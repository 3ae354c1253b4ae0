package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
)

// What lies beside the place of a conflict, in a directory that one side does not
// have, is nobody's to answer for.
func TestWhatLiesBesideAConflictStays(t *testing.T) {
	for what, o := range answersOfBoth() {
		t.Run(what, func(t *testing.T) {
			everywhere(t, func(t *testing.T, b *bench) {
				b.mkdir("d")
				b.write("d/binary", "\x00base")
				b.write("d/same", "same")
				tick()
				b.new("s")
				b.in("s", `printf '\000mine' > d/binary; printf x > fine`)
				b.halt("s")
				b.rename("d", "moved")
				b.write("moved/binary", "\x00real")
				b.write("moved/new", "the user's")
				tick()
				b.refreshed("s", 1)
				b.answered("s", o)
				if got := b.read("moved/new"); got != "the user's" {
					t.Errorf("beside the conflict: %q", got)
				}
			})
		})
	}
}

// A conflict about the mode of a directory is about nothing in it.
func TestTheModeOfADirectoryIsAnsweredAlone(t *testing.T) {
	for what, o := range answersOfBoth() {
		t.Run(what, func(t *testing.T) {
			everywhere(t, func(t *testing.T, b *bench) {
				b.mkdir("d")
				b.write("d/mine", "0")
				b.write("d/real", "0")
				tick()
				b.new("s")
				b.in("s", `chmod 700 d; printf 1 > d/mine`)
				b.halt("s")
				if err := os.Chmod(filepath.Join(b.workspace, "d"), 0o750); err != nil {
					t.Fatal(err)
				}
				b.write("d/real", "2")
				tick()
				b.refreshed("s", 1)
				if got := b.in("s", "cat d/mine d/real"); got != "12" {
					t.Errorf("refreshed: %q", got)
				}
				b.answered("s", o)
				if got := b.read("d/mine") + b.read("d/real"); got != "12" {
					t.Errorf("promoted: %q", got)
				}
			})
		})
	}
}

// Nothing at any place of a conflict that waits in the sandbox is promoted, whichever
// of its places is asked for.
func TestNoPlaceOfAnOpenConflictIsPromotedByName(t *testing.T) {
	everywhere(t, func(t *testing.T, b *bench) {
		b.mkdir("d")
		b.write("d/x", "0")
		tick()
		b.new("s")
		b.in("s", "printf 1 > d/x; printf 1 > fine")
		b.halt("s")
		if err := os.RemoveAll(filepath.Join(b.workspace, "d")); err != nil {
			t.Fatal(err)
		}
		tick()
		b.refreshed("s", 1)
		if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if err := promoteError(b, reconcile.PromoteOptions{PlanOptions: reconcile.PlanOptions{Only: []string{"d/x"}}}); !errors.Is(err, errs.ErrConflict) {
			t.Errorf("a file in a directory that waits for an answer: %v", err)
		}
		if _, err := os.Lstat(filepath.Join(b.workspace, "d")); err == nil {
			t.Error("it was promoted")
		}
		if err := promoteError(b, reconcile.PromoteOptions{PlanOptions: reconcile.PlanOptions{Only: []string{"fine"}}}); err != nil {
			t.Errorf("what does not wait: %v", err)
		}
	})
}

// What the sandbox has renamed stays renamed when its marks are edited away. Where the
// base is live, nothing tells any more that it was renamed.
func TestARenamedTextIsNotAtItsOldPlaceAfterMarks(t *testing.T) {
	onBtrfs(t, func(t *testing.T, b *bench) {
		b.write("old", lines(12, nil))
		tick()
		b.new("s")
		b.in("s", "sed -i 's/line c/sandbox/' old; mv old new")
		b.halt("s")
		b.write("old", lines(12, map[int]string{2: "real\n"}))
		tick()
		b.refreshed("s", 1)
		if got := b.in("s", "ls; cat new"); strings.Contains(got, "old") || !strings.Contains(got, "<<<<<<<") {
			t.Errorf("refreshed: %q", got)
		}
		b.in("s", "printf resolved > new")
		if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if err := promoteError(b, reconcile.PromoteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(b.workspace, "old")); err == nil || b.read("new") != "resolved" {
			t.Errorf("promoted: %v, %q", err, b.read("new"))
		}
	})
}

func answersOfBoth() map[string]reconcile.RefreshOptions {
	return map[string]reconcile.RefreshOptions{"mine": {Mine: []string{"."}}, "theirs": {Theirs: []string{"."}}}
}

// halt ends what runs in a sandbox, and has what its keeper keeps be kept.
func (b *bench) halt(name string) {
	b.t.Helper()
	if err := b.Supervise.Stop(b.t.Context(), name); err != nil {
		b.t.Fatal(err)
	}
	b.changed(name, "", "")
	tick()
}

func (b *bench) mkdir(name string) {
	b.t.Helper()
	if err := os.Mkdir(filepath.Join(b.workspace, name), 0o755); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) rename(from, to string) {
	b.t.Helper()
	if err := os.Rename(filepath.Join(b.workspace, from), filepath.Join(b.workspace, to)); err != nil {
		b.t.Fatal(err)
	}
}

// refreshed brings reality into a sandbox, with so many conflicts.
func (b *bench) refreshed(name string, conflicts int) {
	b.t.Helper()
	r, err := b.Reconcile.Refresh(b.t.Context(), name, reconcile.RefreshOptions{})
	if err != nil || len(r.Conflicts) != conflicts {
		b.t.Fatalf("refresh: %+v, %v", r, err)
	}
}

// answered answers all conflicts of a sandbox, and promotes.
func (b *bench) answered(name string, o reconcile.RefreshOptions) {
	b.t.Helper()
	if err := b.Supervise.Stop(b.t.Context(), name); err != nil {
		b.t.Fatal(err)
	}
	if r, err := b.Reconcile.Refresh(b.t.Context(), name, o); err != nil || len(r.Conflicts) > 0 {
		b.t.Fatalf("answered: %+v, %v", r, err)
	}
	if _, err := b.Reconcile.Promote(b.t.Context(), name, reconcile.PromoteOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

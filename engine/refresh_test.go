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

func TestRefreshBringsRealityIntoTheSandbox(t *testing.T) {
	asEach(t, refreshBringsRealityIntoTheSandbox)
	onBtrfs(t, refreshBringsRealityIntoTheSandbox)
}

func refreshBringsRealityIntoTheSandbox(t *testing.T, b *bench) {
	b.diverge()
	if _, err := b.Snapshot(t.Context(), "s", "before"); err != nil {
		t.Fatal(err)
	}
	r, err := b.Reconcile.Refresh(t.Context(), "s", reconcile.RefreshOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Conflicts) > 0 {
		t.Errorf("conflicts: %+v", r.Conflicts)
	}
	if got, want := b.in("s", "cat text"), lines(12, map[int]string{1: "sandbox\n", 10: "real\n"}); got != want {
		t.Errorf("text in the sandbox: %q", got)
	}
	if got := b.in("s", "cat mine theirs d/new; ls gone 2>&1 | grep -c No"); got != "1121\n" {
		t.Errorf("the rest in the sandbox: %q", got)
	}
	b.expect("s", "", "", "A d", "A d/new", "D gone", "M mine", "M text")
	if _, err := b.Reconcile.Promote(t.Context(), "s", dry(strictly())); err != nil {
		t.Errorf("what was refreshed has drifted: %v", err)
	}
	if err := b.Rollback(t.Context(), "s", "before"); err != nil {
		t.Fatal(err)
	}
	if got, want := b.in("s", "cat text"), lines(12, map[int]string{1: "sandbox\n"}); got != want {
		t.Errorf("text in the state from before: %q", got)
	}
	if _, err := b.Reconcile.Refresh(t.Context(), "s", reconcile.RefreshOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.read("text"), lines(12, map[int]string{1: "sandbox\n", 10: "real\n"}); got != want {
		t.Errorf("promoted: %q", got)
	}
	b.sound("refreshed")
}

// collide makes a sandbox and a real tree that both change the same: a text, a
// binary, and a file that the user deletes.
func (b *bench) collide() {
	b.t.Helper()
	b.write("text", lines(5, nil))
	b.write("binary", "\x00base")
	b.write("deleted", "0")
	tick()
	b.new("s")
	b.in("s", `sed -i 's/line c/sandbox/' text; printf '\000mine' > binary; printf 1 > deleted; printf x > fine`)
	if err := b.Supervise.Stop(b.t.Context(), "s"); err != nil {
		b.t.Fatal(err)
	}
	b.changed("s", "", "") // what its keeper keeps, and is not waited for
	tick()
	b.write("text", lines(5, map[int]string{2: "real\n"}))
	b.write("binary", "\x00real")
	if err := os.Remove(filepath.Join(b.workspace, "deleted")); err != nil {
		b.t.Fatal(err)
	}
	tick()
}

func TestConflictsStayInTheSandboxUntilTheyAreResolved(t *testing.T) {
	everywhere(t, conflictsStayInTheSandbox)
}

func conflictsStayInTheSandbox(t *testing.T, b *bench) {
	b.collide()
	_, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{})
	if !errors.Is(err, errs.ErrConflict) {
		t.Fatalf("promoting conflicts: %v", err)
	}
	for _, name := range []string{"text", "binary", "deleted"} {
		if !strings.Contains(err.Error(), filepath.Join(b.workspace, name)) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(b.workspace, "fine")); err == nil {
		t.Error("something was promoted")
	}
	r, err := b.Reconcile.Refresh(t.Context(), "s", reconcile.RefreshOptions{})
	if err != nil || len(r.Conflicts) != 3 {
		t.Fatalf("refresh: %+v, %v", r, err)
	}
	if got := b.in("s", "cat text"); !strings.Contains(got, "<<<<<<<") || !strings.Contains(got, "sandbox\n") || !strings.Contains(got, "real\n") {
		t.Errorf("text: %q", got)
	}
	if got := b.in("s", "cat binary deleted fine"); got != "\x00mine1x" {
		t.Errorf("the others: %q", got)
	}
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"promote": promoteError(b, reconcile.PromoteOptions{}),
		"apply":   func() error { _, err := b.Reconcile.Promote(t.Context(), "s", strictly()); return err }(),
		"refresh": func() error { _, err := b.Reconcile.Refresh(t.Context(), "s", reconcile.RefreshOptions{}); return err }(),
	} {
		if !errors.Is(err, errs.ErrConflict) {
			t.Errorf("%s with open conflicts: %v", what, err)
		}
	}
	b.in("s", "printf resolved > text")
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	r, err = b.Reconcile.Refresh(t.Context(), "s", reconcile.RefreshOptions{Mine: []string{"binary"}, Theirs: []string{"deleted"}})
	if err != nil || r.Resolved != 2 || len(r.Conflicts) != 0 {
		t.Fatalf("resolving: %+v, %v", r, err)
	}
	if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
		t.Fatal(err)
	}
	if b.read("text") != "resolved" || b.read("binary") != "\x00mine" || b.read("fine") != "x" {
		t.Errorf("promoted: %q, %q, %q", b.read("text"), b.read("binary"), b.read("fine"))
	}
	if _, err := os.Lstat(filepath.Join(b.workspace, "deleted")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("deleted is back: %v", err)
	}
	b.sound("resolved")
}

func promoteError(b *bench, o reconcile.PromoteOptions) error {
	_, err := b.Reconcile.Promote(b.t.Context(), "s", o)
	return err
}

func TestConflictsAreAnswered(t *testing.T) {
	everywhere(t, func(t *testing.T, b *bench) {
		b.collide()
		o := reconcile.PromoteOptions{Mine: []string{"deleted"}, Theirs: []string{"*.bin", "binary"}, Tool: `grep -v '^line a' "$MINE" > "$OUT"`}
		done, err := b.Reconcile.Promote(t.Context(), "s", o)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.read("text"); got != "line b\nsandbox\nline d\nline e\n" {
			t.Errorf("by the tool: %q", got)
		}
		if b.read("binary") != "\x00real" || b.read("deleted") != "1" {
			t.Errorf("%q, %q", b.read("binary"), b.read("deleted"))
		}
		plan, err := b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})
		if err != nil || len(plan.Steps)+len(plan.Conflicts) > 0 {
			t.Errorf("what was answered is asked again: %+v, %v", plan, err)
		}
		if _, err := b.Reconcile.Undo(t.Context(), done.ID); err != nil {
			t.Fatal(err)
		}
		if b.read("text") != lines(5, map[int]string{2: "real\n"}) || b.read("binary") != "\x00real" {
			t.Errorf("undone: %q, %q", b.read("text"), b.read("binary"))
		}
		o.Tool = "exit 1"
		if err := promoteError(b, o); err == nil || !strings.Contains(err.Error(), "running the merge tool") {
			t.Errorf("a tool that fails: %v", err)
		}
	})
}

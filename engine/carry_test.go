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

// everywhere runs a test on a live base and on a frozen one as root, and in make test-long
// on a live one as an ordinary user (see [asBoth]).
func everywhere(t *testing.T, test func(t *testing.T, b *bench)) {
	asBoth(t, test)
	if later(t) {
		onBtrfs(t, test)
	}
}

// lines are numbered ones, with some replaced.
func lines(n int, but map[int]string) string {
	var b strings.Builder
	for i := range n {
		if s, ok := but[i]; ok {
			b.WriteString(s)
		} else {
			b.WriteString("line " + string(rune('a'+i)) + "\n")
		}
	}
	return b.String()
}

// stage makes a workspace, a sandbox "s" of it that changes what it can, and
// then changes the real tree.
func (b *bench) diverge() {
	b.t.Helper()
	b.write("text", lines(12, nil))
	b.write("mine", "0")
	b.write("theirs", "0")
	b.write("gone", "0")
	b.write("../new-text", lines(12, map[int]string{1: "sandbox\n"}))
	tick()
	b.new("s")
	b.in("s", "cp ../new-text text; printf 1 > mine; rm gone; mkdir d; printf 2 > d/new")
	if err := b.Supervise.Stop(b.t.Context(), "s"); err != nil {
		b.t.Fatal(err)
	}
	b.changed("s", "", "") // what its keeper keeps, and is not waited for
	tick()
	b.write("text", lines(12, map[int]string{10: "real\n"}))
	b.write("theirs", "1")
	tick()
}

func TestPromoteMergesWithWhatHappenedSince(t *testing.T) {
	asEach(t, promoteMergesWithWhatHappenedSince)
	onBtrfs(t, promoteMergesWithWhatHappenedSince)
}

func promoteMergesWithWhatHappenedSince(t *testing.T, b *bench) {
	b.diverge()
	plan, err := b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Conflicts) > 0 || len(plan.NeedsApproval) > 0 {
		t.Errorf("plan: %+v", plan)
	}
	for _, s := range plan.Steps {
		t.Logf("%s %s merged %v %v", s.Do, s.Path, s.Merged, s.What)
	}
	done, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{Plan: plan.Fingerprint})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"text": lines(12, map[int]string{1: "sandbox\n", 10: "real\n"}), "mine": "1", "theirs": "1", "d/new": "2",
	}
	for name, content := range want {
		if got := b.read(name); got != content {
			t.Errorf("%s: %q, want %q", name, got, content)
		}
	}
	if _, err := os.Lstat(filepath.Join(b.workspace, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
	again, err := b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})
	if err != nil || len(again.Steps)+len(again.Conflicts) > 0 {
		t.Errorf("after it, there is still to do: %+v, %v", again, err)
	}
	undone, err := b.Reconcile.Undo(t.Context(), "")
	if err != nil || undone.ID != done.ID {
		t.Fatalf("undo of %s: %+v, %v", done.ID, undone, err)
	}
	want = map[string]string{"text": lines(12, map[int]string{10: "real\n"}), "mine": "0", "theirs": "1", "gone": "0"}
	for name, content := range want {
		if got := b.read(name); got != content {
			t.Errorf("undone, %s: %q, want %q", name, got, content)
		}
	}
	if _, err := os.Lstat(filepath.Join(b.workspace, "d")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("undone, d: %v", err)
	}
	back, err := b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})
	if err != nil || back.Fingerprint != plan.Fingerprint {
		t.Errorf("undone, the plan is another: %v, %v", back, err)
	}
	if _, err := b.Reconcile.Undo(t.Context(), ""); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("nothing is left to undo: %v", err)
	}
}

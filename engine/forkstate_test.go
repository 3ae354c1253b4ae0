package engine_test

import (
	"errors"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestAForkOfAnOldStateDoesNotRevertLaterPromotions: the fork of a snapshot that is older than a promotion lacks the
// promoted lines, but nobody has deleted them there. So its own promotion leaves them in the real tree.
func TestAForkOfAnOldStateDoesNotRevertLaterPromotions(t *testing.T) {
	everywhere(t, forkOfAnOldStateDoesNotRevertLaterPromotions)
}

func forkOfAnOldStateDoesNotRevertLaterPromotions(t *testing.T, b *bench) {
	want := b.promotedSince("before")
	if _, err := b.Fork(t.Context(), "s", "before", "k"); err != nil {
		t.Fatal(err)
	}
	b.in("k", "sed -i '11s/.*/third/' text")
	b.promoteStopped("k")
	want[10] = "third\n"
	b.keptPromoted(want)
}

// TestAFailedRollbackDoesNotRevertLaterPromotions: a rollback to a state that is older than a promotion fails while it
// changes the baseline. Wherever that left the files, a promotion leaves the promoted lines in the real tree.
func TestAFailedRollbackDoesNotRevertLaterPromotions(t *testing.T) {
	everywhere(t, failedRollbackDoesNotRevertLaterPromotions)
}

func failedRollbackDoesNotRevertLaterPromotions(t *testing.T, b *bench) {
	want := b.promotedSince("before")
	broken := errors.New("broken")
	ctx := treetest.WithFaults(t.Context(), func(step string) error {
		if step == "write the baseline" {
			return broken
		}
		return nil
	})
	if err := b.Rollback(ctx, "s", "before"); !errors.Is(err, broken) {
		t.Fatalf("the rollback ended with %v", err)
	}
	b.promoteStopped("s")
	b.keptPromoted(want)
}

// TestARollbackDoesNotRevertLaterPromotions: nor does a promotion after a rollback to a state that is older than one.
func TestARollbackDoesNotRevertLaterPromotions(t *testing.T) {
	everywhere(t, rollbackDoesNotRevertLaterPromotions)
}

func rollbackDoesNotRevertLaterPromotions(t *testing.T, b *bench) {
	want := b.promotedSince("before")
	rollback := func(mark string) {
		t.Helper()
		if err := b.Rollback(t.Context(), "s", mark); err != nil {
			t.Fatal(err)
		}
	}
	rollback("before")
	b.in("s", "sed -i '11s/.*/third/' text")
	b.promoteStopped("s")
	want[10] = "third\n"
	b.keptPromoted(want)
	rollback("")
	b.in("s", "sed -i '4s/.*/fourth/' text")
	b.promoteStopped("s")
	want[3] = "fourth\n"
	b.keptPromoted(want)
}

// promotedSince makes a sandbox "s" with a snapshot called mark, after which it changes a line of text and adds a file,
// and promotes both. It returns the changed lines of text.
func (b *bench) promotedSince(mark string) map[int]string {
	b.t.Helper()
	b.write("text", lines(12, nil))
	tick()
	b.new("s")
	b.in("s", "sed -i '2s/.*/first/' text")
	if _, err := b.Snapshot(b.t.Context(), "s", mark); err != nil {
		b.t.Fatal(err)
	}
	b.in("s", "sed -i '6s/.*/second/' text; echo new > added")
	b.promoteStopped("s")
	return map[int]string{1: "first\n", 5: "second\n"}
}

// promoteStopped ends what runs in a sandbox and promotes its changes.
func (b *bench) promoteStopped(name string) {
	b.t.Helper()
	if err := b.Supervise.Stop(b.t.Context(), name); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.Reconcile.Promote(b.t.Context(), name, reconcile.PromoteOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// keptPromoted checks that the real tree has what promotedSince promoted: the added file, and text with the lines want.
func (b *bench) keptPromoted(want map[int]string) {
	b.t.Helper()
	if got, want := b.read("text"), lines(12, want); got != want {
		b.t.Errorf("promoted: %q, want %q", got, want)
	}
	if got := b.read("added"); got != "new\n" {
		b.t.Errorf("the added file has %q", got)
	}
	b.sound("promoted twice")
}

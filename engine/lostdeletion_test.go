package engine_test

import (
	"errors"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
)

// A sandbox's removal of a file is promoted, and later, by an answer to a conflict, its new version. When the person
// removes that, it stays removed: that the file is absent does not mean that the promotion of the removal left it so.
func TestAFileThatAnAnswerPromotedCanBeRemoved(t *testing.T) {
	asRoot(t, func(t *testing.T, b *bench) {
		b.write("f", "old\n")
		tick()
		b.new("s")
		b.in("s", "rm f")
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.outside("echo theirs > f")
		b.in("s", "echo mine > f")
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{Mine: []string{"f"}}); err != nil {
			t.Fatal(err)
		}
		if got := b.read("f"); got != "mine\n" {
			t.Fatalf("f is %q", got)
		}
		b.outside("rm f")
		b.new("other")
		b.in("s", "echo more > more")
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := b.outside("ls"); got != "more\n" {
			t.Errorf("the workspace has %q", got)
		}
	})
}

// A sandbox's removal of a file is promoted, then both sides make the file alike, which a promotion need not write. When
// the person removes it, it stays removed.
func TestAFileThatBothSidesMadeAgainCanBeRemoved(t *testing.T) {
	asRoot(t, func(t *testing.T, b *bench) {
		b.write("f", "old\n")
		tick()
		b.new("s")
		promote := func() {
			t.Helper()
			if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		b.in("s", "rm f")
		promote()
		b.outside("echo new > f")
		b.in("s", "echo new > f")
		promote()
		b.outside("rm f")
		b.in("s", "echo more > more")
		promote()
		if got := b.outside("ls"); got != "more\n" {
			t.Errorf("the workspace has %q", got)
		}
	})
}

// A sandbox's removal of a file is promoted, and the person makes the file again. After a refresh the sandbox edits it
// and the person removes it: that is a conflict.
func TestAFileMadeAgainBeforeARefreshIsNotMadeTwice(t *testing.T) {
	asRoot(t, func(t *testing.T, b *bench) {
		b.write("f", "old\n")
		tick()
		b.new("s")
		b.in("s", "rm f")
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.outside("echo new > f")
		if _, err := b.Reconcile.Refresh(t.Context(), "s", reconcile.RefreshOptions{}); err != nil {
			t.Fatal(err)
		}
		b.in("s", "echo mine >> f")
		b.outside("rm f")
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); !errors.Is(err, errs.ErrConflict) {
			t.Errorf("the promotion: %v", err)
		}
	})
}

package engine_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/transfer"
)

// edited makes a workspace, and a sandbox "s" that changed, deleted and made something.
func (b *bench) edited() {
	b.t.Helper()
	b.write("keep", "0")
	b.write("gone", "0")
	b.write("theirs", "0")
	tick()
	b.new("s")
	b.in("s", "printf 1 > keep; rm gone; mkdir d; printf 2 > d/new")
	if err := b.Supervise.Stop(b.t.Context(), "s"); err != nil {
		b.t.Fatal(err)
	}
	b.changed("s", "", "") // what its keeper keeps, and is not waited for
	tick()
}

// asItWas fails the test where the workspace is not what edited made it.
func (b *bench) asItWas(when string) {
	b.t.Helper()
	if keep, gone := b.read("keep"), b.read("gone"); keep != "0" || gone != "0" {
		b.t.Errorf("%s: keep %q, gone %q", when, keep, gone)
	}
	if got, err := os.ReadDir(b.workspace); err != nil || len(got) != 3 {
		b.t.Errorf("%s: the workspace holds %v, %v", when, got, err)
	}
}

func TestUndoTakesAnApplyBack(t *testing.T) {
	asEach(t, undoTakesAnApplyBack)
	onBtrfs(t, undoTakesAnApplyBack)
}

func undoTakesAnApplyBack(t *testing.T, b *bench) {
	b.edited()
	for range 2 { // what was taken back can be applied again
		done, err := b.Reconcile.Promote(t.Context(), "s", strictly())
		if err != nil {
			t.Fatal(err)
		}
		if b.read("keep") != "1" || b.read("d/new") != "2" {
			t.Errorf("keep %q, d/new %q", b.read("keep"), b.read("d/new"))
		}
		u, err := b.Reconcile.Undo(t.Context(), done.ID)
		if err != nil {
			t.Fatal(err)
		}
		if u.Sandbox != "s" || u.Changes != done.Changes || !slices.Equal(u.Paths, []string{b.workspace}) {
			t.Errorf("%+v of %+v", u, done)
		}
		b.asItWas("taken back")
	}
	if _, err := b.Reconcile.Undo(t.Context(), ""); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("undoing once more: %v", err)
	}
}

func TestUndoTakesBackAllThatOneApplyDid(t *testing.T) { asBoth(t, undoTakesBackAllThatOneApplyDid) }

func undoTakesBackAllThatOneApplyDid(t *testing.T, b *bench) {
	b.edited()
	beside := filepath.Join(filepath.Dir(b.workspace), "beside")
	b.in("s", "printf 3 > ../beside")
	if _, err := b.Reconcile.Promote(t.Context(), "s", strictly(b.workspace, beside)); err != nil {
		t.Fatal(err)
	}
	if got := b.read("../beside"); got != "3" {
		t.Errorf("beside: %q", got)
	}
	u, err := b.Reconcile.Undo(t.Context(), "")
	if err != nil || len(u.Paths) != 2 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := os.Lstat(beside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("beside: %v", err)
	}
	b.asItWas("taken back")
}

// On a live base what a renamed directory holds is read from the real one, which the apply takes away.
func TestApplyingARenamedDirectoryTwiceDeletesNothing(t *testing.T) {
	everywhere(t, applyingARenamedDirectoryTwiceDeletesNothing)
}

func applyingARenamedDirectoryTwiceDeletesNothing(t *testing.T, b *bench) {
	if err := os.Mkdir(filepath.Join(b.workspace, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("d/file", "real")
	tick()
	b.new("s")
	b.in("s", "mv d e")
	done, err := b.Reconcile.Promote(t.Context(), "s", strictly())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	again, err := b.Reconcile.Promote(t.Context(), "s", strictly())
	if err != nil && !errors.Is(err, errs.ErrDrifted) || again.Changes > 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	if got := b.read("e/file"); got != "real" {
		t.Errorf("the real file holds %q", got)
	}
	if _, serr := transfer.New(b.Engine).Send(t.Context(), io.Discard, transfer.SendRequest{Sandbox: "s"}); (serr == nil) != (err == nil) {
		t.Errorf("sent: %v; applied: %v", serr, err)
	}
	if _, err := b.Reconcile.Undo(t.Context(), done.ID); err != nil {
		t.Error(err)
	}
	if got := b.read("d/file"); got != "real" {
		t.Errorf("taken back, the real file holds %q", got)
	}
	if c := b.changed("s", "", ""); len(c) == 0 {
		t.Error("taken back, the sandbox has changed nothing")
	}
}

// A disk of the state directory that is full is found when all has been done.
func TestAnApplyThatCannotBeRememberedIsTakenBack(t *testing.T) {
	everywhere(t, anApplyThatCannotBeRememberedIsTakenBack)
}

func anApplyThatCannotBeRememberedIsTakenBack(t *testing.T, b *bench) {
	b.edited()
	inTheWay := filepath.Join(b.state, "sandboxes", "s", "applied.json.new")
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if done, err := b.Reconcile.Promote(t.Context(), "s", strictly()); err == nil {
		t.Errorf("applied: %+v", done)
	}
	b.asItWas("taken back")
	if left, err := b.Reconcile.Promotions(); err != nil || len(left) > 0 {
		t.Errorf("to be undone: %v, %v", left, err)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
}

func TestUndoLeavesAnApplyThatSomebodyHasWorkedOn(t *testing.T) {
	everywhere(t, undoLeavesAnApplyThatSomebodyHasWorkedOn)
}

func undoLeavesAnApplyThatSomebodyHasWorkedOn(t *testing.T, b *bench) {
	b.edited()
	if _, err := b.Reconcile.Promote(t.Context(), "s", strictly()); err != nil {
		t.Fatal(err)
	}
	tick()
	b.write("d/new", "real")
	if _, err := b.Reconcile.Undo(t.Context(), ""); !errors.Is(err, errs.ErrDrifted) || !strings.Contains(err.Error(), "d: ") {
		t.Errorf("undo: %v", err)
	}
	if b.read("keep") != "1" || b.read("d/new") != "real" {
		t.Errorf("keep %q, d/new %q", b.read("keep"), b.read("d/new"))
	}
}

// What an undo has put back is what the sandbox was made from: nobody has changed it.
func TestWhatAnUndoPutBackIsNoDrift(t *testing.T) { everywhere(t, whatAnUndoPutBackIsNoDrift) }

func whatAnUndoPutBackIsNoDrift(t *testing.T, b *bench) {
	b.edited()
	for range 2 {
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Reconcile.Undo(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		b.asItWas("taken back")
		drift, err := b.Compare.DriftOf(t.Context(), "s")
		if err != nil || len(drift.Paths) > 0 {
			t.Errorf("after the undo: %+v, %v", drift.Paths, err)
		}
		if _, err := b.Reconcile.Promote(t.Context(), "s", strictly()); err != nil {
			t.Fatalf("applying after the undo: %v", err)
		}
		if _, err := b.Reconcile.Undo(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
}

// What the user had changed before the promotion, and what he changes after the undo, is
// his.
func TestWhatTheUserChangedIsDriftAfterAnUndo(t *testing.T) {
	everywhere(t, whatTheUserChangedIsDriftAfterAnUndo)
}

func whatTheUserChangedIsDriftAfterAnUndo(t *testing.T, b *bench) {
	b.edited()
	b.write("keep", "real")
	tick()
	if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{Mine: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reconcile.Undo(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	tick()
	b.write("gone", "real")
	_, err := b.Reconcile.Promote(t.Context(), "s", strictly())
	if !errors.Is(err, errs.ErrDrifted) || !strings.Contains(err.Error(), "keep: ") || !strings.Contains(err.Error(), "gone: ") {
		t.Errorf("apply: %v", err)
	}
	if b.read("keep") != "real" || b.read("gone") != "real" {
		t.Errorf("keep %q, gone %q", b.read("keep"), b.read("gone"))
	}
}

// A sandbox whose base has what was applied has to hear that it is there no more.
func TestWhatAnUndoPutBackIsDriftToALaterBase(t *testing.T) {
	everywhere(t, whatAnUndoPutBackIsDriftToALaterBase)
}

func whatAnUndoPutBackIsDriftToALaterBase(t *testing.T, b *bench) {
	again := map[string]func(context.Context) error{
		"refreshed": func(ctx context.Context) error {
			_, err := b.Reconcile.Refresh(ctx, "s", reconcile.RefreshOptions{})
			return err
		},
		"made anew": func(ctx context.Context) error {
			req := b.request()
			req.Name = "s"
			err := b.Remove(ctx, "s")
			if err == nil {
				_, err = b.New(ctx, req)
			}
			return err
		},
	}
	b.edited()
	for what, make := range again {
		if _, err := b.Reconcile.Promote(t.Context(), "s", strictly()); err != nil {
			t.Fatal(err)
		}
		tick()
		if err := make(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.in("s", "printf 3 > keep") // after the undo it would be a change of what the sandbox saw
		tick()
		if _, err := b.Reconcile.Undo(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Reconcile.Promote(t.Context(), "s", strictly()); !errors.Is(err, errs.ErrDrifted) {
			t.Errorf("%s: apply: %v", what, err)
		}
		if err := b.Remove(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		b.asItWas(what)
		b.edited()
	}
}

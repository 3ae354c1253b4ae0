package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// killedPromotion makes a sandbox "c" whose promotion was killed after the first moves, and returns the promotion's ID.
func (b *bench) killedPromotion() (id string) {
	b.t.Helper()
	for n := 10; ; n += 3 {
		b.divergeFor("promote")
		o := b.child("promote", n, "kill")
		if !o.killed {
			b.t.Fatal("no kill left the target half moved")
		}
		if left := b.journals(); len(left) > 0 && b.read("text") != realOfCarry {
			return strings.TrimSuffix(left[0], filepath.Ext(left[0]))
		}
		b.Engine, _ = b.reopen()
		if err := b.Remove(b.t.Context(), "c"); err != nil {
			b.t.Fatal(err)
		}
	}
}

// A workspace that was deleted after a killed promotion, and made anew, is not held up by that promotion.
func TestAKilledPromotionWhoseWorkspaceWasDeletedHoldsUpNothing(t *testing.T) {
	for _, how := range []string{"moved away", "made anew"} {
		t.Run(how, func(t *testing.T) {
			b := benchIn(t, treetest.Dir(t), treetest.Dir(t))
			treetest.Leaks(t, filepath.Dir(b.state))
			ctx, id, moved := t.Context(), b.killedPromotion(), b.workspace+".moved"
			if err := os.Rename(b.workspace, moved); err != nil {
				t.Fatal(err)
			}
			if how == "made anew" {
				if err := os.RemoveAll(moved); err != nil {
					t.Fatal(err)
				}
				if err := os.Mkdir(b.workspace, 0o755); err != nil { // may get the inode number of the deleted one
					t.Fatal(err)
				}
				b.write("text", "anew")
			}
			b.Engine, _ = b.reopen()
			u := b.Reconcile.UnfinishedOf("c")
			if u == nil || !u.Gone || !strings.Contains(u.String(), "snapfs undo --forget "+id) {
				t.Fatalf("unfinished: %+v", u)
			}
			_, err := b.Reconcile.Refresh(ctx, "c", reconcile.RefreshOptions{})
			var e *errs.Error
			if !errors.As(err, &e) || !errors.Is(err, errs.ErrBusy) || !strings.Contains(strings.Join(e.Hints, "\n"), "snapfs undo --forget "+id) {
				t.Errorf("refresh of the sandbox itself: %v, hints %+v", err, e)
			}
			if err := b.Remove(ctx, "c"); err != nil {
				t.Fatal(err)
			}
			if how == "made anew" {
				b.goesOnAnew("c") // the name of the removed one
				b.goesOnAnew("d")
			}
			g, err := b.Reconcile.GiveUp(ctx, id)
			if err != nil || len(g.Old) == 0 || len(g.Left) != 1 {
				t.Fatalf("given up: %+v, %v", g, err)
			}
			kept := map[string]string{}
			for _, k := range g.Old {
				data, err := os.ReadFile(k.In)
				if err != nil {
					t.Error(err)
				}
				kept[k.Path] = string(data)
			}
			if got := kept[filepath.Join(b.workspace, "text")]; got != realOfCarry {
				t.Errorf("kept: %q", kept)
			}
			if left := b.journals(); len(left) > 0 {
				t.Errorf("journals: %v", left)
			}
			if _, err := b.Reconcile.GiveUp(ctx, id); !errors.Is(err, errs.ErrNotFound) {
				t.Errorf("given up again: %v", err)
			}
		})
	}
}

// goesOnAnew does in a new sandbox what a user does.
func (b *bench) goesOnAnew(name string) {
	b.t.Helper()
	ctx := b.t.Context()
	tick()
	b.new(name)
	b.in(name, "printf "+name+" > text")
	tick()
	err := errors.Join(b.Supervise.Stop(ctx, name), second(b.Reconcile.Refresh(ctx, name, reconcile.RefreshOptions{})),
		second(b.Reconcile.Promote(ctx, name, strictly())), b.Remove(ctx, name))
	if err != nil || b.read("text") != name {
		b.t.Errorf("%s: %v; text is %q", name, err, b.read("text"))
	}
}

// A promotion that was killed before anything moved leaves nothing when it is given up.
func TestGivingUpAPromotionThatMovedNothingRemovesItsStage(t *testing.T) {
	b := benchIn(t, treetest.Dir(t), treetest.Dir(t))
	treetest.Leaks(t, filepath.Dir(b.state))
	var id string
	for n := 4; id == ""; n += 3 {
		b.divergeFor("promote")
		if o := b.child("promote", n, "kill"); !o.killed {
			t.Fatal("no kill left a stage and no move")
		}
		stages, _ := filepath.Glob(filepath.Join(filepath.Dir(b.workspace), ".snapfs-apply-*"))
		if left := b.journals(); len(left) > 0 && len(stages) > 0 {
			id = strings.TrimSuffix(left[0], filepath.Ext(left[0]))
			continue
		}
		b.Engine, _ = b.reopen()
		if err := b.Remove(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(b.workspace, b.workspace+".moved"); err != nil {
		t.Fatal(err)
	}
	b.Engine, _ = b.reopen()
	g, err := b.Reconcile.GiveUp(t.Context(), id)
	if err != nil || len(g.Old) > 0 || len(g.Left) > 0 {
		t.Errorf("given up: %+v, %v", g, err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(b.workspace), ".snapfs-apply-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := b.Remove(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	if got := names(filepath.Join(b.state, "promotions")); strings.Contains(fmt.Sprint(got), id) {
		t.Errorf("left in the state directory: %v", got)
	}
}

package promote_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A turn is an undo or a redo of the only promotion in a world, and the trees that it starts from and makes.
type turn struct {
	w          *world
	redo       bool
	start, end string
}

// newTurn makes a world with a change of every kind, to be undone or redone.
func newTurn(t *testing.T, redo bool) *turn {
	t.Helper()
	before, after := scene()
	u := &turn{w: newWorld(t, treetest.Dir(t), before, after), redo: redo}
	u.end = u.look(t)
	u.w.promoted(t, "s", u.w.frozen())
	u.start = u.look(t)
	if redo {
		u.w.undone(t)
		u.start, u.end = u.end, u.start
	}
	return u
}

// turns calls f for undo and for redo.
func turns(t *testing.T, f func(t *testing.T, redo bool)) {
	t.Run("undo", func(t *testing.T) { f(t, false) })
	t.Run("redo", func(t *testing.T) { f(t, true) })
}

// look describes the tree but for the file mod, which the tests change.
func (u *turn) look(t *testing.T) string {
	t.Helper()
	return treetest.Manifest(t, u.w.real.Name(), treetest.Options{Skip: func(path string) bool { return path == "mod" }})
}

// waiting returns the promotion that the turn is about, and fails the test unless exactly that one is listed.
func (u *turn) waiting(t *testing.T) promote.Promotion {
	t.Helper()
	list := promote.Promotions
	if u.redo {
		list = promote.Undones
	}
	all, err := list(u.w.state())
	must(t, err)
	if len(all) != 1 {
		t.Fatalf("listed are %+v", all)
	}
	return all[0]
}

// do undoes or redoes the promotion. It calls at before each step that it takes back, with the number of the step.
func (u *turn) do(t *testing.T, o promote.UndoOptions, at func(n int) error) (promote.Recovery, error) {
	t.Helper()
	n := 0
	ctx := treetest.WithFaults(t.Context(), func(step string) error {
		if step != "take back" || at == nil {
			return nil
		}
		n++
		return at(n)
	})
	if u.redo {
		return promote.Redo(ctx, u.w.state(), u.waiting(t).ID, o)
	}
	o.Again = time.Now()
	return promote.UndoWith(ctx, u.w.state(), u.waiting(t).ID, o)
}

// back brings the world to the state before the turn.
func (u *turn) back(t *testing.T) {
	t.Helper()
	if u.redo {
		u.w.undone(t)
	} else {
		u.w.redone(t)
	}
}

// is fails the test unless the tree is as wanted.
func (u *turn) is(t *testing.T, when, want string) {
	t.Helper()
	if l := treetest.Lines(want, u.look(t)); len(l) > 0 {
		t.Fatalf("%s: %q", when, l)
	}
}

func TestAnUndoOrRedoOfWhichOneStepFailsIsRolledBack(t *testing.T) {
	turns(t, func(t *testing.T, redo bool) {
		u, stride := newTurn(t, redo), treetest.Budget(t, 3, 1)
		for fail := 1; ; fail += stride {
			when := fmt.Sprint("step ", fail)
			_, err := u.do(t, promote.UndoOptions{}, func(n int) error {
				if n == fail {
					return errRehearsed
				}
				return nil
			})
			if err == nil {
				if fail < 15 {
					t.Fatalf("not even step %d was taken", fail)
				}
				u.is(t, "without a failure", u.end)
				return
			}
			if !errors.Is(err, errRehearsed) || !strings.Contains(err.Error(), "all files are as they were") {
				t.Fatalf("%s: %v", when, err)
			}
			u.is(t, when, u.start)
			if list, err := promote.Recover(t.Context(), u.w.state()); err != nil || len(list) > 0 {
				t.Fatalf("%s: %+v was left: %v", when, list, err)
			}
			if _, err := u.do(t, promote.UndoOptions{}, nil); err != nil {
				t.Fatalf("%s, once more: %v", when, err)
			}
			u.is(t, when+", once more", u.end)
			u.back(t)
			u.is(t, when+", and back", u.start)
		}
	})
}

// If not even that succeeds, the next command completes the undo or the redo.
func TestAnUndoOrRedoThatCannotBeRolledBackIsCompletedLater(t *testing.T) {
	turns(t, func(t *testing.T, redo bool) {
		u := newTurn(t, redo)
		_, err := u.do(t, promote.UndoOptions{}, func(n int) error {
			if n >= 10 {
				return errRehearsed
			}
			return nil
		})
		if !errors.Is(err, errRehearsed) || !strings.Contains(err.Error(), "the next command continues it") {
			t.Fatal(err)
		}
		if list, err := promote.Recover(t.Context(), u.w.state()); err != nil || len(list) != 1 || list[0].RolledBack != nil || len(list[0].Changed) > 0 {
			t.Fatalf("%+v %v", list, err)
		}
		u.is(t, "recovered", u.end)
		u.back(t)
		u.is(t, "and back", u.start)
	})
}

// mine changes the file mod, as a person would in the midst of an undo.
func (u *turn) mine() error {
	return os.WriteFile(u.w.real.Name()+"/mod", []byte("mine"), 0o644)
}

// allOrNothing fails the test unless the turn was completed or rolled back, with the person's change of the file mod.
// kept is why it was rolled back, or nil.
func (u *turn) allOrNothing(t *testing.T, when string, kept error) {
	t.Helper()
	if got, err := os.ReadFile(u.w.real.Name() + "/mod"); err != nil || string(got) != "mine" {
		t.Fatalf("%s: mod has %q: %v", when, got, err)
	}
	if kept == nil { // it was at the file before the change
		u.is(t, when, u.end)
		return
	}
	u.is(t, when, u.start)
	if !errors.Is(kept, errs.ErrDrifted) || len(u.w.listed(kept)) != 2 || !strings.Contains(kept.Error(), "mod: changed by another program meanwhile; all files are as they were") {
		t.Fatalf("%s: %v", when, kept)
	}
	if _, err := u.do(t, promote.UndoOptions{}, nil); !errors.Is(err, errs.ErrDrifted) || strings.Join(u.w.listed(err), " ") != "mod" {
		t.Fatalf("%s, once more: %v", when, err)
	}
	if _, err := u.do(t, promote.UndoOptions{Same: func(path string) bool { return path == "mod" }}, nil); err != nil {
		t.Fatalf("%s, with the change: %v", when, err)
	}
	u.is(t, when+", with the change", u.end)
}

// A change of another program in the midst of an undo or a redo stays, and all other files are as before, or as after.
func TestAnUndoOrRedoThatFindsAChangeDoesAllOrNothing(t *testing.T) {
	turns(t, func(t *testing.T, redo bool) {
		kept, stride := 0, treetest.Budget(t, 5, 1)
		for change := 1; change <= 16; change += stride {
			u := newTurn(t, redo)
			r, err := u.do(t, promote.UndoOptions{}, func(n int) error {
				if n == change {
					return u.mine()
				}
				return nil
			})
			if r.RolledBack != nil {
				kept++
			}
			if (err == nil) != (r.RolledBack == nil) {
				t.Fatalf("%v, but %v", err, r.RolledBack)
			}
			u.allOrNothing(t, fmt.Sprint("step ", change), r.RolledBack)
		}
		if kept < 2 {
			t.Errorf("only %d were rolled back", kept)
		}
	})
}

// So it is if the change is made after the undo or the redo was killed.
func TestAKilledUndoOrRedoThatFindsAChangeDoesAllOrNothing(t *testing.T) {
	treetest.OncePerRun(t)
	turns(t, func(t *testing.T, redo bool) {
		command, kept, stride := map[bool]string{false: "again", true: "redo"}[redo], 0, treetest.Budget(t, 5, 1)
		for step := 1; step <= 16; step += stride {
			u := newTurn(t, redo)
			if !killed(t, u.w, command, step) {
				t.Fatalf("step %d was not reached", step)
			}
			must(t, u.mine())
			list, err := promote.Recover(t.Context(), u.w.state())
			must(t, err)
			if len(list) != 1 || len(list[0].Changed) > 0 {
				t.Fatalf("step %d: %+v", step, list)
			}
			if list[0].RolledBack != nil {
				kept++
			}
			u.allOrNothing(t, fmt.Sprint("step ", step), list[0].RolledBack)
		}
		if kept < 2 {
			t.Errorf("only %d were rolled back", kept)
		}
	})
}

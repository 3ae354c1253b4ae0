package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// carryOperations are done to a sandbox "c" as divergeFor makes it.
func carryOperations() map[string]operation {
	return map[string]operation{
		"refresh": {do: func(ctx context.Context, b *bench) error {
			_, err := b.Reconcile.Refresh(ctx, "c", reconcile.RefreshOptions{})
			return err
		}},
		"promote": {do: func(ctx context.Context, b *bench) error {
			_, err := b.Reconcile.Promote(ctx, "c", reconcile.PromoteOptions{})
			return err
		}},
		"undo": {do: func(ctx context.Context, b *bench) error {
			_, err := b.Reconcile.Undo(ctx, "")
			return err
		}},
		"resolve": {do: func(ctx context.Context, b *bench) error {
			_, err := b.Reconcile.Refresh(ctx, "c", reconcile.RefreshOptions{Theirs: []string{"clash"}})
			return err
		}},
		"apply": {do: func(ctx context.Context, b *bench) error {
			_, err := b.Reconcile.Promote(ctx, "c", strictly())
			return err
		}},
		"plan": {do: func(ctx context.Context, b *bench) error {
			_, err := b.Reconcile.PlanOf(ctx, "c", reconcile.PlanOptions{})
			return err
		}},
	}
}

const (
	beforeCarry = "a\nb\nc\nd\ne\nf\n"
	mineOfCarry = "a\nMINE\nc\nd\ne\nf\n"
	realOfCarry = "a\nb\nc\nd\nREAL\nf\n"
	bothOfCarry = "a\nMINE\nc\nd\nREAL\nf\n"
)

// divergeFor makes a sandbox "c" and a real tree for an operation.
func (b *bench) divergeFor(op string) {
	b.t.Helper()
	ctx := b.t.Context()
	must := func(_ any, err error) {
		b.t.Helper()
		if err != nil {
			b.t.Fatal(err)
		}
	}
	for _, p := range []string{"text", "clash", "gone", "new"} {
		must(nil, os.RemoveAll(filepath.Join(b.workspace, p)))
	}
	b.write("text", beforeCarry)
	b.write("gone", "0")
	b.write("clash", "0")
	tick()
	b.new("c")
	b.in("c", `sed -i s/b/MINE/ text; rm gone; mkdir new; printf 1 > new/f`)
	if op == "resolve" {
		b.in("c", `printf 1 > clash`)
	}
	must(nil, b.Supervise.Stop(ctx, "c"))
	b.changed("c", "", "")
	tick()
	b.write("text", realOfCarry)
	if op == "resolve" {
		b.write("clash", "2")
		tick()
		must(b.Reconcile.Refresh(ctx, "c", reconcile.RefreshOptions{}))
	}
	tick()
	if op == "undo" {
		must(b.Reconcile.Promote(ctx, "c", reconcile.PromoteOptions{}))
	}
}

// whole reports what the real tree holds: "real", "promoted", or what is wrong.
func (b *bench) whole() string {
	_, gone := os.Lstat(filepath.Join(b.workspace, "gone"))
	_, made := os.Lstat(filepath.Join(b.workspace, "new/f"))
	_, dir := os.Lstat(filepath.Join(b.workspace, "new"))
	switch text := b.read("text"); {
	case text == realOfCarry && gone == nil && made != nil && dir != nil:
		return "real"
	case text == bothOfCarry && gone != nil && made == nil:
		return "promoted"
	default:
		return fmt.Sprintf("torn: text %q, gone %v, new/f %v", text, gone, made)
	}
}

// rehearseCarry does each operation with a failure at each stride-th step. The real
// tree is always whole, and the sandbox holds what it has changed.
func (b *bench) rehearseCarry(mode string, stride int, ops ...string) {
	b.t.Helper()
	for _, op := range ops {
		b.divergeFor(op)
		stride := sampled(b.t, stride)
		first := 1 + os.Getpid()%stride
		n, ended := first, false
		for ; !ended; n += stride {
			when := fmt.Sprintf("%s, %s at step %d", op, mode, n)
			o := b.child(op, n, mode)
			b.Engine, _ = b.reopen()
			b.sound(when)
			real := b.whole()
			ended = !o.killed && o.steps < n
			if ended && o.err != nil {
				b.t.Fatalf("%s: with nothing in its way: %v", when, o.err)
			}
			want := map[string]string{"promote": "promoted", "undo": "real"}[op]
			switch {
			case want == "" && real != "real":
				b.t.Errorf("%s: the real tree: %s", when, real)
			case real != "real" && real != "promoted":
				b.t.Errorf("%s: the real tree: %s", when, real)
			case !o.killed && o.err == nil && want != "" && real != want:
				b.t.Errorf("%s: said to be done, and the real tree is %s", when, real)
			case o.err != nil && !o.killed && want == real && op == "promote":
				b.t.Errorf("%s: reported as failed, and the real tree is %s: %v", when, real, o.err)
			}
			b.holdsItsOwn(when)
			if real == want || op == "refresh" || op == "resolve" {
				if err := b.Remove(b.t.Context(), "c"); err != nil {
					b.t.Fatal(err)
				}
				b.divergeFor(op)
			}
		}
		b.t.Logf("%s: %d steps", op, n-stride-1)
		if err := b.Remove(b.t.Context(), "c"); err != nil {
			b.t.Fatal(err)
		}
	}
}

// holdsItsOwn: whatever happened, what the sandbox has changed is in it.
func (b *bench) holdsItsOwn(when string) {
	b.t.Helper()
	got := b.in("c", "cat text new/f; ls gone 2>/dev/null; true")
	if got != mineOfCarry+"1" && got != bothOfCarry+"1" {
		b.t.Errorf("%s: in the sandbox: %q", when, got)
	}
	if err := b.Supervise.Stop(b.t.Context(), "c"); err != nil {
		b.t.Fatal(err)
	}
}

func TestTheWayBackIsWholeAfterACrashAtAnyStep(t *testing.T) {
	all := []string{"plan", "refresh", "resolve", "promote", "undo"}
	for _, mode := range []string{"kill", "fail"} {
		t.Run(mode, func(t *testing.T) {
			stride := 9
			if long() {
				stride = 1
			}
			t.Run("root", func(t *testing.T) {
				treetest.NeedRoot(t)
				newBench(t).rehearseCarry(mode, stride, all...)
			})
			if !later(t) {
				return
			}
			t.Run("user", func(t *testing.T) {
				if treetest.AsUser(t) {
					newBench(t).rehearseCarry(mode, 6*stride, all...)
				}
			})
			onBtrfs(t, func(_ *testing.T, b *bench) { b.rehearseCarry(mode, 3*stride, all...) })
		})
	}
}

// What the sandbox never had before its eyes is the user's, also where he answered
// for the sandbox and the promotion then failed and put everything back.
func TestApplyRefusesWhatAFailedPromotionPutBack(t *testing.T) {
	everywhere(t, func(t *testing.T, b *bench) {
		b.write("f", "0")
		tick()
		b.new("c")
		b.in("c", "printf mine > f")
		b.write("f", "real")
		if err := b.Supervise.Stop(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		tick()
		refused := 0
		for at := 1; ; at++ {
			passed := 0
			ctx := treetest.WithFaults(t.Context(), func(string) error {
				if passed++; passed == at {
					return errRehearsal
				}
				return nil
			})
			_, err := b.Reconcile.Promote(ctx, "c", reconcile.PromoteOptions{Mine: []string{"*"}})
			if err == nil {
				break
			}
			if got := b.read("f"); got != "real" {
				t.Fatalf("a promotion that failed at step %d left %q", at, got)
			}
			if _, err := b.Reconcile.Promote(t.Context(), "c", strictly()); !errors.Is(err, errs.ErrDrifted) {
				t.Fatalf("apply after a promotion that failed at step %d: %v, and the file has %q", at, err, b.read("f"))
			}
			refused++
		}
		if got := b.read("f"); got != "mine" || refused < 5 {
			t.Errorf("%q after %d promotions that failed", got, refused)
		}
	})
}

func TestTwoPromotionsAtOnceAreOneAfterTheOther(t *testing.T) {
	everywhere(t, func(t *testing.T, b *bench) {
		for _, name := range []string{"a", "b"} {
			b.write("text-"+name, "0")
		}
		b.write("both", beforeCarry)
		tick()
		for i, name := range []string{"a", "b"} {
			b.new(name)
			b.in(name, fmt.Sprintf("printf 1 > text-%s; sed -i '%ds/.*/%s/' both", name, 1+4*i, name))
			if err := b.Supervise.Stop(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			b.changed(name, "", "")
		}
		tick()
		failures := make([]error, 4)
		times(len(failures), func(i int) {
			for range 20 {
				_, failures[i] = b.Reconcile.Promote(t.Context(), []string{"a", "b"}[i%2], reconcile.PromoteOptions{})
				if !errors.Is(failures[i], errs.ErrBusy) && !errors.Is(failures[i], errs.ErrDrifted) {
					break
				}
			}
		})
		if err := errors.Join(failures...); err != nil {
			t.Error(err)
		}
		if got := b.read("both"); got != "a\nb\nc\nd\nb\nf\n" || b.read("text-a") != "1" || b.read("text-b") != "1" {
			t.Errorf("both %q, %q, %q", got, b.read("text-a"), b.read("text-b"))
		}
		for range 2 {
			if _, err := b.Reconcile.Undo(t.Context(), ""); err != nil {
				t.Error(err)
			}
		}
		if got := b.read("both"); got != beforeCarry {
			t.Errorf("both undone: %q", got)
		}
	})
}

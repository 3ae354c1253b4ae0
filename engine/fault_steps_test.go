package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/treetest"
)

// An operation is done to a sandbox "s", whose file f holds 2 now and 1 in its
// state m1, or to one "v", or makes one "k".
type operation struct {
	do func(context.Context, *bench) error
	// done reports whether its effect is there, and clear takes it back.
	done  func(*bench) bool
	clear func(*bench)
	// needsV: a sandbox "v" has to be there.
	needsV bool
}

func operations() map[string]operation {
	there := func(name string) func(*bench) bool {
		return func(b *bench) bool { _, err := b.Show(context.Background(), name); return err == nil }
	}
	remove := func(b *bench) {
		if err := b.Remove(context.Background(), "k"); err != nil && !errors.Is(err, snapshot.ErrNotFound) {
			b.t.Error(err)
		}
	}
	fork := func(mark string) operation {
		return operation{done: there("k"), clear: remove, do: func(ctx context.Context, b *bench) error {
			_, err := b.Fork(ctx, "s", mark, "k")
			return err
		}}
	}
	return map[string]operation{
		"new": {done: there("k"), clear: remove, do: func(ctx context.Context, b *bench) error {
			req := b.request()
			req.Name = "k"
			_, err := b.New(ctx, req)
			return err
		}},
		"run":  {do: func(ctx context.Context, b *bench) error { return runAndKeep(ctx, b, "") }},
		"keep": {done: there("k"), clear: remove, do: func(ctx context.Context, b *bench) error { return runAndKeep(ctx, b, "k") }},
		"exec": {do: func(ctx context.Context, b *bench) error {
			p, err := b.Exec(ctx, "s", b.command("true"))
			if err != nil {
				return err
			}
			_, err = p.Wait(ctx)
			return errors.Join(err, p.Close())
		}},
		"snapshot": {done: func(b *bench) bool { return b.hasMark("x") }, do: func(ctx context.Context, b *bench) error {
			_, err := b.Snapshot(ctx, "s", "x")
			return err
		}},
		"rollback": {do: func(ctx context.Context, b *bench) error { return b.Rollback(ctx, "s", "m1") },
			done: func(b *bench) bool { return b.in("s", "cat f") == "1" }},
		"fork":       fork(""),
		"fork state": fork("m1"),
		"remove": {needsV: true, do: func(ctx context.Context, b *bench) error { return b.Remove(ctx, "v") },
			done: func(b *bench) bool { return !there("v")(b) }},
	}
}

func runAndKeep(ctx context.Context, b *bench, name string) error {
	s, err := b.Run(ctx, b.request(), b.command("echo x > new"))
	if err != nil {
		return err
	}
	_, err = s.Wait(ctx)
	if err == nil && name != "" {
		if err = s.Keep(ctx, name); err == nil {
			return nil
		}
	}
	return errors.Join(err, s.Discard(ctx))
}

func (b *bench) hasMark(name string) bool {
	info, err := b.Show(b.t.Context(), "s")
	if err != nil {
		b.t.Fatal(err)
	}
	_, ok := info.Mark(name)
	return ok
}

// setStage makes "s" as operations expect it.
func (b *bench) setStage() {
	b.t.Helper()
	b.write("f", "0")
	b.new("s")
	for _, state := range []string{"1", "2"} {
		b.in("s", "printf "+state+" > f")
		if _, err := b.Snapshot(b.t.Context(), "s", "m"+state); err != nil {
			b.t.Fatal(err)
		}
	}
}

// restage takes the effect of an operation back.
func (b *bench) restage(op operation, when string) {
	b.t.Helper()
	if op.clear != nil {
		op.clear(b)
	}
	if op.needsV && op.done(b) {
		b.new("v")
	}
	if b.hasMark("x") { // what was named can be forked
		if _, err := b.Fork(b.t.Context(), "s", "x", "k"); err != nil {
			b.t.Errorf("%s: a state that is there cannot be forked: %v", when, err)
		}
		for _, name := range []string{"k", "s"} {
			if err := b.Remove(b.t.Context(), name); err != nil {
				b.t.Error(err)
			}
		}
		b.setStage()
		return
	}
	if b.turn++; b.turn%4 == 0 || b.in("s", "cat f") == "1" {
		b.goBack(when)
	}
}

// goBack visits both named states.
func (b *bench) goBack(when string) {
	b.t.Helper()
	for _, state := range []string{"1", "2"} {
		if err := b.Rollback(b.t.Context(), "s", "m"+state); err != nil {
			b.t.Fatalf("%s: the named state: %v", when, err)
		}
		if got := b.in("s", "cat f"); got != state {
			b.t.Errorf("%s: in m%s, f is %q", when, state, got)
		}
	}
}

// rehearseAll does every operation with a failure at each stride-th step.
func (b *bench) rehearseAll(mode string, stride int, ops ...string) {
	b.setStage()
	for _, name := range ops {
		op := operations()[name]
		if op.needsV {
			b.new("v")
		}
		reached := 0
		for n := 1; ; n += stride {
			when := fmt.Sprintf("%s, %s at step %d", name, mode, n)
			o := b.child(name, n, mode)
			reached = n
			notes := b.notes()
			b.mendAfter(name, op, o, notes, when)
			if !o.killed && o.steps < n {
				if o.err != nil || op.done != nil && !op.done(b) {
					b.t.Fatalf("%s: with nothing in its way: %v", when, o.err)
				}
				b.restage(op, when)
				break
			}
			if o.killed != (mode == "kill") {
				b.t.Fatalf("%s: killed %v, %v", when, o.killed, o.err)
			}
			if !o.killed && o.err == nil && op.done != nil && !op.done(b) {
				b.t.Errorf("%s: said to be done, but is not", when)
			}
			if o.err != nil && !o.killed && wholly(name) && op.done(b) {
				b.t.Errorf("%s: reported as failed, but is done: %v", when, o.err)
			}
			b.restage(op, when)
		}
		b.t.Logf("%s: %d steps", name, reached-1)
		if reached < 2 {
			b.t.Errorf("%s has only %d steps", name, reached-1)
		}
		if op.needsV {
			if err := b.Remove(b.t.Context(), "v"); err != nil {
				b.t.Error(err)
			}
		}
	}
}

// notes counts what commands say they are in the middle of, keepers apart.
func (b *bench) notes() (n int) {
	for _, name := range names(filepath.Join(b.state, "active")) {
		if !strings.Contains(name, "."+catalog.Keeping+".") {
			n++
		}
	}
	return n
}

// wholly: after an error there is no effect. What removes may be done but for
// the cleaning.
func wholly(name string) bool {
	switch name {
	case "new", "keep", "fork", "fork state", "snapshot":
		return true
	}
	return false
}

// mendAfter is the next command.
func (b *bench) mendAfter(name string, op operation, o outcome, notes int, when string) {
	b.t.Helper()
	e, said := b.reopen()
	b.Engine = e
	if o.killed && notes > 0 && len(*said) == 0 && !op.finished(b) {
		b.t.Errorf("%s: what was mended is not said", when)
	}
	b.sound(when)
	if real := b.read("f"); real != "0" || b.read("new") == "x\n" {
		b.t.Errorf("%s: the real tree was touched: f is %q", when, real)
	}
	if got := b.in("s", "cat f"); got != "2" && (name != "rollback" || got != "1") {
		b.t.Errorf("%s: f is %q in a sandbox that was there", when, got)
	}
}

func (op operation) finished(b *bench) bool { return op.done != nil && op.done(b) }

var everyOperation = []string{"new", "run", "keep", "exec", "snapshot", "rollback", "fork", "fork state", "remove"}

func TestACommandKilledAtAnyStepIsMendedByTheNext(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		newBench(t).rehearseAll("kill", 1, everyOperation...)
	})
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			newBench(t).rehearseAll("kill", 13, everyOperation...)
		}
	})
	onBtrfs(t, func(_ *testing.T, b *bench) {
		b.rehearseAll("kill", 1, "new", "snapshot", "rollback", "remove")
	})
}

func TestAStepThatFailsLeavesNothingHalfDone(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		newBench(t).rehearseAll("fail", 1, everyOperation...)
	})
	onBtrfs(t, func(_ *testing.T, b *bench) {
		b.rehearseAll("fail", 1, "new", "snapshot", "rollback", "remove")
	})
}

const keeperEnv = "SNAPFS_TEST_KEEPER"

// rehearsedKeeper is the context of a keeper that fails at a step: keeperEnv
// holds its number, how it fails, and a file that says it was reached.
func rehearsedKeeper() (ctx context.Context, arm func()) {
	n, rest, rehearsed := strings.Cut(os.Getenv(keeperEnv), " ")
	if !rehearsed {
		return context.Background(), func() {}
	}
	r := new(rehearsal)
	r.n, _ = strconv.ParseInt(n, 10, 64)
	r.mode, r.hit, _ = strings.Cut(rest, " ")
	return fault.With(context.Background(), r.plan), func() { r.armed.Store(true) }
}

func TestAKeeperThatFailsAtAnyStepIsMended(t *testing.T) { asBoth(t, aKeeperThatFailsIsMended) }

func aKeeperThatFailsIsMended(t *testing.T, b *bench) {
	b.setStage()
	for _, mode := range []string{"kill", "fail"} {
		hit := filepath.Join(filepath.Dir(b.state), "hit-"+mode)
		for n := 1; ; n++ {
			when := fmt.Sprintf("a keeper, %s at step %d", mode, n)
			if err := b.Stop(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
			t.Setenv(keeperEnv, fmt.Sprint(n, " ", mode, " ", hit))
			err := operations()["exec"].do(t.Context(), b)
			t.Setenv(keeperEnv, "")
			b.sound(when)
			if got := b.in("s", "cat f"); got != "2" {
				t.Errorf("%s: f is %q", when, got)
			}
			if _, unreached := os.Lstat(hit); unreached != nil {
				if err != nil || n < 4 {
					t.Errorf("%s: %v", when, err)
				}
				break
			}
			if mode == "kill" {
				b.Engine, _ = b.reopen()
			}
			if err := os.Remove(hit); err != nil {
				t.Fatal(err)
			}
		}
	}
}

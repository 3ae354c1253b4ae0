package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
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
		if err := b.Remove(context.Background(), "k"); err != nil && !errors.Is(err, errs.ErrNotFound) {
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
		"run":   {do: func(ctx context.Context, b *bench) error { return runAndKeep(ctx, b, "") }},
		"keep":  {done: there("k"), clear: remove, do: func(ctx context.Context, b *bench) error { return runAndKeep(ctx, b, "k") }},
		"race":  raced(),
		"sleep": {do: sleeping},
		"exec": {do: func(ctx context.Context, b *bench) error {
			p, err := b.Supervise.Exec(ctx, "s", b.command("true"))
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
		"rollback": {
			do:   func(ctx context.Context, b *bench) error { return b.Rollback(ctx, "s", "m1") },
			done: func(b *bench) bool { return b.in("s", "cat f") == "1" },
		},
		"rollback live": {do: func(ctx context.Context, b *bench) error { return b.RollbackLive(ctx, "s", "m1") }},
		"fork":          fork(""),
		"fork state":    fork("m1"),
		"remove": {
			needsV: true, do: func(ctx context.Context, b *bench) error { return b.Remove(ctx, "v") },
			done: func(b *bench) bool { return !there("v")(b) },
		},
	}
}

// sleeping is a run that does not end by itself.
func sleeping(ctx context.Context, b *bench) error {
	s, err := b.Run(ctx, b.request(), b.command("exec sleep 1000"))
	if err != nil {
		return err
	}
	_, err = s.Wait(ctx)
	return errors.Join(err, s.Discard(ctx))
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
	_, ok := info.Snapshot(name)
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

// longEnv asks for the long form of these tests: every step, on every backend,
// and 1,000 rounds. It takes some minutes.
const longEnv = "SNAPFS_TEST_LONG"

func long() bool { return os.Getenv(longEnv) != "" }

// sampled returns the stride of a rehearsal: the given one in make check-all, a longer one
// in make test and with the race detector.
func sampled(t testing.TB, stride int) int {
	t.Helper()
	return stride * treetest.Budget(t, 12, 1)
}

// rehearseAll does every operation with a failure at each stride-th step, from
// one that differs between runs.
func (b *bench) rehearseAll(mode string, stride int, ops ...string) {
	stride = sampled(b.t, stride)
	first := 1 + os.Getpid()%stride
	if long() {
		first, stride = 1, 1
	}
	b.setStage()
	for _, name := range ops {
		op := operations()[name]
		if op.needsV {
			b.new("v")
		}
		var reached int
		for n := first; ; n += stride {
			when := fmt.Sprintf("%s, %s at step %d", name, mode, n)
			if err := b.Supervise.Stop(b.t.Context(), "s"); err != nil { // so that exec starts a keeper
				b.t.Fatal(err)
			}
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
		if reached < 2 && stride == 1 {
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
		if !strings.Contains(name, "."+catalog.Supervising+".") {
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
	b.sound(when)
	if o.killed && notes > 0 && len(*said) == 0 && !op.finished(b) {
		b.t.Errorf("%s: what was mended is not said", when)
	}
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
	if !later(t) {
		return
	}
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			newBench(t).rehearseAll("kill", 41, everyOperation...)
		}
	})
	onBtrfs(t, func(_ *testing.T, b *bench) {
		b.rehearseAll("kill", 2, "new", "snapshot", "rollback", "remove")
	})
}

func TestAStepThatFailsLeavesNothingHalfDone(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		newBench(t).rehearseAll("fail", 3, everyOperation...)
	})
	if !later(t) {
		return
	}
	onBtrfs(t, func(_ *testing.T, b *bench) {
		b.rehearseAll("fail", 3, "new", "snapshot", "rollback", "remove")
	})
}

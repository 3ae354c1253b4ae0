package engine_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// polite: what a command may answer when others work on the same sandbox. One that has not
// begun when they stop it is interrupted.
func polite(err error) bool {
	return err == nil || errors.Is(err, errs.ErrBusy) || errors.Is(err, errs.ErrNotFound) || errors.Is(err, errs.ErrExists) ||
		errors.Is(err, errs.ErrInterrupted)
}

// times calls f n times at once.
func times(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func TestAHundredSandboxesAtOnce(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		names := make(chan string, 100)
		times(treetest.Budget(t, 40, 100), func(int) {
			rec, err := b.New(t.Context(), b.request())
			if err != nil {
				t.Error(err)
				return
			}
			names <- rec.Name
		})
		close(names)
		b.sound("a hundred made at once")
		var all []string
		for n := range names {
			all = append(all, n)
		}
		times(len(all), func(i int) {
			if err := b.Remove(t.Context(), all[i]); err != nil {
				t.Error(err)
			}
		})
		b.sound("a hundred removed at once")
	})
}

func TestTwentyProcessesAtOnce(t *testing.T) { asBoth(t, twentyProcessesAtOnce) }

// twentyProcessesAtOnce are the first users of a state directory, then work on
// one sandbox.
func twentyProcessesAtOnce(t *testing.T, b *bench) {
	if err := os.RemoveAll(b.state); err != nil {
		t.Fatal(err)
	}
	times(20, func(int) {
		if o := b.child("run", 0, ""); o.err != nil {
			t.Error(o.err)
		}
	})
	b.Engine, _ = b.reopen()
	b.sound("twenty runs")
	b.setStage()
	ops := []string{"exec", "snapshot", "rollback", "fork", "exec", "fork state", "exec", "rollback", "new", "exec"}
	times(20, func(i int) {
		o := b.child(ops[i%len(ops)], 0, "")
		if o.killed || o.err != nil && !strings.Contains(o.err.Error(), "in it") && !strings.Contains(o.err.Error(), "processes run in the sandbox") && !strings.Contains(o.err.Error(), "taken") {
			t.Errorf("%s: %v", ops[i%len(ops)], o.err)
		}
	})
	b.sound("races on one sandbox")
	b.goBack("after races on it")
	if err := b.Remove(t.Context(), "k"); !polite(err) {
		t.Error(err)
	}
}

func TestOneSandboxIsRacedFor(t *testing.T) { asBoth(t, oneSandboxIsRacedFor) }

func oneSandboxIsRacedFor(t *testing.T, b *bench) {
	for round := range treetest.Budget(t, 4, 8) {
		b.new("s")
		b.in("s", "printf 0 > f")
		ctx := t.Context()
		exec := func() error {
			p, err := b.Supervise.Exec(ctx, "s", b.command("printf 1 > f; sleep 0.02; printf 2 > g"))
			if err != nil {
				return err
			}
			_, err = p.Wait(ctx)
			return errors.Join(err, p.Close())
		}
		acts := []func() error{
			exec, exec, exec,
			func() error { _, err := b.Snapshot(ctx, "s", ""); return err },
			func() error { _, err := b.Snapshot(ctx, "s", ""); return err },
			func() error { return b.Rollback(ctx, "s", "") },
			func() error { _, err := b.Fork(ctx, "s", "", fmt.Sprint("k", round)); return err },
		}
		if round%2 == 1 {
			acts = append(acts, func() error { return b.Remove(ctx, "s") }, func() error { return b.Remove(ctx, "s") })
		}
		times(len(acts), func(i int) {
			if err := acts[i](); !polite(err) {
				t.Errorf("round %d, %d: %v", round, i, err)
			}
		})
		for _, name := range []string{"s", fmt.Sprint("k", round)} {
			if err := b.Remove(ctx, name); err != nil && !errors.Is(err, errs.ErrNotFound) {
				t.Errorf("round %d: %v", round, err)
			}
		}
		b.sound(fmt.Sprint("round ", round))
	}
}

func TestASandboxIsRemovedOnce(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.new("s")
		b.in("s", "true")
		failures := make([]error, 4)
		times(len(failures), func(i int) { failures[i] = b.Remove(t.Context(), "s") })
		won := len(slices.DeleteFunc(failures, func(err error) bool { return errors.Is(err, errs.ErrNotFound) }))
		if err := errors.Join(failures...); won != 1 || !polite(err) {
			t.Errorf("%d removed it: %v", won, err)
		}
		b.sound("removed four times")
	})
}

func TestAForkDuringWritesIsOneMoment(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.new("w")
		p, err := b.Supervise.Exec(t.Context(), "w", b.command("i=0; while :; do i=$((i+1)); echo $i > a; echo $i > b; done"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		times(4, func(i int) {
			name := fmt.Sprint("k", i)
			if _, err := b.Fork(t.Context(), "w", "", name); err != nil {
				t.Error(err)
				return
			}
			b.removeLater(name)
		})
		for i := range 4 {
			var x, y int
			_, _ = fmt.Sscan(b.in(fmt.Sprint("k", i), "cat a b 2>/dev/null; true"), &x, &y)
			if x != y && x != y+1 && y != 0 {
				t.Errorf("a fork holds a %d and b %d: two moments", x, y)
			}
		}
	})
}

// TestNothingAccumulates makes and removes 200 sandboxes, 100 as an ordinary
// user, and 1,000 where longEnv is set. That the last take no longer than the
// first is judged where nothing else runs, by the gate of bench.
func TestNothingAccumulates(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		rounds := treetest.Budget(t, 60, 200)
		switch {
		case long():
			rounds = 1000
		case os.Geteuid() != 0: // each has a dozen trees
			rounds /= 2
		}
		var first []string
		for i := range rounds {
			if i%2 == 0 {
				b.round()
			} else if rec, err := b.New(t.Context(), b.request()); err != nil {
				t.Fatal(err)
			} else if err := b.Remove(t.Context(), rec.Name); err != nil {
				t.Fatal(err)
			}
			if i == 20 {
				first = everything(b)
			}
		}
		if last := everything(b); len(last) > len(first)+5 {
			more := slices.DeleteFunc(last, func(name string) bool { return slices.Contains(first, name) })
			t.Errorf("%d files and descriptors more after %d rounds than after 20: %q", len(more), rounds, more)
		}
		b.sound("many rounds")
	})
}

// round makes a sandbox for a command, and removes it.
func (b *bench) round() {
	b.t.Helper()
	s, err := b.Run(b.t.Context(), b.request(), b.command("echo x > new"))
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = s.Wait(b.t.Context())
	if err = errors.Join(err, s.Discard(b.t.Context())); err != nil {
		b.t.Fatal(err)
	}
}

// everything lists the files of the state directory, without the images of hidden names, and this process's
// descriptors. Package mounts bounds the images, and their number depends on the homes that other tests make.
func everything(b *bench) []string {
	all := names("/proc/self/fd")
	var walk func(string)
	walk = func(dir string) {
		for _, n := range names(dir) {
			if dir == b.state && n == "images" {
				continue
			}
			all = append(all, dir+"/"+n)
			walk(dir + "/" + n)
		}
	}
	walk(b.state)
	return all
}

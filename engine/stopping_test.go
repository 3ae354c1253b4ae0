package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A command that is just starting when its sandbox is stopped ends, or does not begin: neither
// in the keeper that is stopped nor in one of its own, and no keeper stays for it.
func TestWhatStartsWhileASandboxIsStoppedDoesNotRun(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.setStage()
		for _, step := range []string{"wait for the sandbox", "start a supervisor", "ask for the command"} {
			t.Run(step, func(t *testing.T) { startingWhileStopped(t, b, step) })
		}
	})
}

func startingWhileStopped(t *testing.T, b *bench, step string) {
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	if step == "ask for the command" { // of a keeper that runs something
		k := b.talk("s")
		defer func() { _ = k.Close() }()
	}
	reached := false
	ctx := treetest.WithFaults(t.Context(), func(at string) error {
		if reached && at == "start a supervisor" {
			t.Error("a keeper was started after the stop")
		}
		if at != step || reached {
			return nil
		}
		reached = true
		if step != "ask for the command" {
			stopped <- b.Supervise.Stop(t.Context(), "s")
			return nil
		}
		go func() { stopped <- b.Supervise.Stop(t.Context(), "s") }()
		for len(inside(b)) > 0 { // its keeper waits for the lock that exec has
		}
		return nil
	})
	began := filepath.Join(t.TempDir(), "began")
	if err := os.WriteFile(began, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(began, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := b.command("echo began; exec sleep 1000")
	c.Stdout = out
	p, err := b.Supervise.Exec(ctx, "s", c)
	if err == nil {
		_ = p.Close()
	}
	if !errors.Is(err, errs.ErrInterrupted) || !strings.Contains(err.Error(), "stopped meanwhile") {
		t.Errorf("exec: %v", err)
	}
	if err := <-stopped; err != nil || !reached {
		t.Errorf("stop: %v", err)
	}
	if left := inside(b); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if said, err := os.ReadFile(began); err != nil || len(said) > 0 {
		t.Errorf("it says %q, %v", said, err)
	}
	if got := b.in("s", "echo again"); got != "again\n" {
		t.Errorf("the next command says %q", got)
	}
	b.sound(step)
}

package engine_test

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
)

// A keeper that was stopped holds up nobody for good: whoever asks it something is told,
// whoever has enough may go, and it is ended all the same.
func TestAKeeperThatIsStoppedHoldsUpNobody(t *testing.T) { asBoth(t, aStoppedKeeper) }

func aStoppedKeeper(t *testing.T, b *bench) {
	b.setStage()
	k := b.talk("s")
	keeper := b.keeperOf("s")
	if err := syscall.Kill(keeper.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b.awaitStopped(keeper)
	asks := map[string]func(ctx context.Context) error{
		"exec":  func(ctx context.Context) error { _, err := b.Supervise.Exec(ctx, "s", b.command("true")); return err },
		"stats": func(ctx context.Context) error { _, err := b.Supervise.UsageOf(ctx, "s"); return err },
		"limits": func(ctx context.Context) error {
			_, err := b.Supervise.SetLimits(ctx, "s", func(l *engine.Limits) error { l.Time = time.Hour; return nil })
			return err
		},
		"port":     func(ctx context.Context) error { _, err := b.Supervise.OpenPort(ctx, "s", 80, 0); return err },
		"snapshot": func(ctx context.Context) error { _, err := b.Snapshot(ctx, "s", "late"); return err },
		"rollback": func(ctx context.Context) error { return b.Rollback(ctx, "s", "m1") },
	}
	for name, ask := range asks {
		enough, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := ask(enough); !errors.Is(err, errs.ErrInterrupted) {
			t.Errorf("%s with enough of it: %v", name, err)
		}
		cancel()
	}
	if err := asks["stats"](t.Context()); !errors.Is(err, errs.ErrBusy) || !slices.Equal(errs.HintsOf(err), []string{"snapfs stop s"}) {
		t.Errorf("stats: %v, hints %q", err, errs.HintsOf(err))
	}
	began := time.Now()
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("stop: %v after %v", err, time.Since(began))
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if info, err := b.Show(t.Context(), "s"); err != nil || info.Policy.Limits.Time != 0 || info.Running || len(info.Snapshots) != 2 {
		t.Errorf("what was asked for in vain was done: %+v, %v", info, err)
	}
	b.sound("a keeper stopped")
}

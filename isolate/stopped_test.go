package isolate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/isolate/internal/stopped"
)

// A process that is continued again and again while the container is frozen by signals, as by a timer of its own, is
// killed; the others stay stopped and continue after Thaw.
func TestFrozenProcessThatContinuesAgainAndAgainIsKilled(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		bad, good := spinning(t, container), spinning(t, container)
		if err := container.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for pid := bad.HostPID(); pid != 0 && ctx.Err() == nil; pid = bad.HostPID() {
			_ = unix.Kill(pid, unix.SIGCONT) // it may have been killed
			<-tick.C
		}
		wantEnd(ctx, t, bad, unix.SIGKILL)
		if err := container.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := good.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		wantEnd(ctx, t, good, unix.SIGTERM)
	})
}

// A process that another continues once, while the container is frozen by signals, is stopped again and not killed.
func TestFrozenProcessThatIsContinuedIsStoppedAgain(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		p := spinning(t, container)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := container.Freeze(ctx); err != nil {
			t.Fatal(err)
		}
		for range mostContinuedByOthers {
			if err := unix.Kill(p.HostPID(), unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			awaitState(ctx, t, container, true)
		}
		if err := container.Thaw(ctx); err != nil {
			t.Fatal(err)
		}
		awaitState(ctx, t, container, false)
		if err := p.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		wantEnd(ctx, t, p, unix.SIGTERM)
	})
}

// mostContinuedByOthers is how often a test continues a frozen process that must not be killed for that.
const mostContinuedByOthers = 2

// A SIGCONT to a process, or to its group, waits for the thaw while the container is frozen by signals, also for a
// process that was stopped before the freeze.
func TestSIGCONTWaitsForTheThaw(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		for name, send := range map[string]func(*Process, unix.Signal) error{"Signal": (*Process).Signal, "SignalGroup": (*Process).SignalGroup} {
			p := spinning(t, container)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := send(p, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			awaitState(ctx, t, container, true)
			if err := container.Freeze(ctx); err != nil {
				t.Fatal(err)
			}
			if err := send(p, unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if !allStopped(container) {
				t.Errorf("%s continued a frozen process", name)
			}
			if err := container.Thaw(ctx); err != nil {
				t.Fatal(err)
			}
			awaitState(ctx, t, container, false)
			if err := p.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			wantEnd(ctx, t, p, unix.SIGTERM)
		}
	})
}

// spinning starts a process that runs until it is killed.
func spinning(t *testing.T, container *Container) *Process {
	t.Helper()
	p, err := container.Exec(t.Context(), shell("while :; do :; done"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wantEnd waits for the end of a process, which sig must have killed.
func wantEnd(ctx context.Context, t *testing.T, p *Process, sig unix.Signal) {
	t.Helper()
	if st, err := p.Wait(ctx); err != nil || st.Signal != sig {
		t.Errorf("the process ended with %v, %v; want %v", st, err, sig)
	}
}

// awaitState waits until all processes of the container have stopped, or until one has not.
func awaitState(ctx context.Context, t *testing.T, container *Container, still bool) {
	t.Helper()
	err := poll.Until(ctx, time.Millisecond, 100*time.Millisecond, func() (bool, error) { return allStopped(container) == still, nil })
	if err != nil {
		t.Fatalf("%v: want stopped %v, got %v", err, still, descendants(container.pid))
	}
}

// allStopped reports whether the container's processes have all stopped, and there is one.
func allStopped(container *Container) bool {
	all := descendants(container.pid)
	return len(all) > 0 && !slices.ContainsFunc(all, func(p stopped.Thread) bool { return !strings.ContainsRune("TtZX", rune(p.State)) })
}

// Processes that are continued again and again while they are being stopped are stopped in the end.
func TestFreezeStopsProcessesThatContinue(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		p, err := container.Exec(t.Context(), shell("while :; do :; done"))
		if err != nil {
			t.Fatal(err)
		}
		began, frozen, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			const often = 100 * time.Millisecond // then less often, so that the freeze can return
			pause := time.Duration(0)
			for start := time.Now(); ; {
				_ = unix.Kill(p.HostPID(), unix.SIGCONT) // its process may have been killed
				if pause == 0 && time.Since(start) > often {
					pause = 5 * stopAgain
				}
				select {
				case began <- struct{}{}:
				case <-frozen:
					return
				case <-time.After(pause):
				}
			}
		}()
		<-began
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := container.Freeze(ctx); err != nil {
			t.Error(err)
		}
		close(frozen)
		<-ended
		if err := poll.Until(ctx, time.Millisecond, 100*time.Millisecond, func() (bool, error) {
			return !slices.ContainsFunc(descendants(container.pid), func(p stopped.Thread) bool { return !strings.ContainsRune("TtZX", rune(p.State)) }), nil
		}); err != nil {
			t.Errorf("%v: these still run: %v", err, descendants(container.pid))
		}
	})
}

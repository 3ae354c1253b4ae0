package isolate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/poll"
)

// A process that is continued while the container is frozen by signals, as by a timer of its own, is killed; the
// others stay stopped and continue after Thaw.
func TestFrozenProcessThatContinuesIsKilled(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		const spin = "while :; do :; done"
		bad, err := container.Exec(t.Context(), shell(spin))
		if err != nil {
			t.Fatal(err)
		}
		good, err := container.Exec(t.Context(), shell(spin))
		if err != nil {
			t.Fatal(err)
		}
		if err := container.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(bad.HostPID(), unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if st, err := bad.Wait(ctx); err != nil || st.Signal != unix.SIGKILL {
			t.Errorf("the one that continued: %v, %v", st, err)
		}
		if err := container.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := good.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if st, err := good.Wait(ctx); err != nil || st.Signal != unix.SIGTERM {
			t.Errorf("the other one: %v, %v", st, err)
		}
	})
}

// A process that is continued again and again while it is being stopped is stopped or killed in the end.
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
			return !slices.ContainsFunc(descendants(container.pid), func(p threadState) bool { return !strings.ContainsRune("TtZX", rune(p.state)) }), nil
		}); err != nil {
			t.Errorf("%v: these still run: %v", err, descendants(container.pid))
		}
	})
}

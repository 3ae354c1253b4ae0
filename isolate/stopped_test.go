package isolate

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// Processes that are continued again and again while they are being stopped are stopped in the end.
func TestFreezeStopsProcessesThatContinue(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		p, err := container.Exec(t.Context(), shell("while :; do :; done"))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
				_ = unix.Kill(p.HostPID(), unix.SIGCONT) // its process may have been killed
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := container.Freeze(ctx); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

func TestASecondSignalEndsTheProgramByItself(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	restored := make(chan bool)
	endAtSecond(ctx, func() { close(restored) })
	select {
	case <-restored:
		t.Fatal("the first signal already had its default effect")
	default:
	}
	cancel()
	select {
	case <-restored:
	case <-time.After(time.Minute):
		t.Fatal("a second signal has no effect")
	}
}

// TestASignalWhileACommandIsPreparedIsPassedOn: a signal that comes before snapfs has connected the command with the
// person's streams reaches the command, which would otherwise run on with nobody who waits for its end.
func TestASignalWhileACommandIsPreparedIsPassedOn(t *testing.T) {
	ctx, signals, restore, catching := catchSignals()
	<-catching
	defer restore()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("the signal does not end the context")
	}
	a := &app{ui: newUI(os.Stdin, os.Stdout, os.Stderr), signals: signals}
	tty := a.terminal(false)
	defer signal.Stop(tty.signals)
	select {
	case s := <-tty.signals:
		if s != syscall.SIGTERM {
			t.Errorf("the command gets %v", s)
		}
	default:
		t.Error("the command does not get the signal")
	}
}

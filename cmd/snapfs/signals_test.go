package main

import (
	"context"
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

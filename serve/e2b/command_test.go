package e2b

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/snapfs/snapfs/serve/e2b/envd"
)

// TestAStalledClientIsDroppedOnce: also when both streams of a command wait for it at once, and the command goes on.
// Cost: none, because its clock is not the real one.
func TestAStalledClientIsDroppedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader()
		x := &command{readers: map[*reader]bool{r: true}, done: make(chan struct{})}
		event := &envd.ProcessEvent{}
		for range maxQueued {
			x.send(event)
		}
		began := time.Now()
		var streams sync.WaitGroup
		for range 2 {
			streams.Go(func() { x.send(event) })
		}
		streams.Wait()
		x.send(event)
		if waited := time.Since(began); waited != slowClient || len(x.readers) != 0 || !r.slow {
			t.Errorf("after %v: %d clients, slow is %v", waited, len(x.readers), r.slow)
		}
		ctx := context.WithValue(t.Context(), sandboxKey{}, visit{call: &call{}})
		received := 0
		err := x.follow(ctx, nil, nil, r, func(*envd.ProcessEvent) error { received++; return nil })
		if connect.CodeOf(err) != connect.CodeResourceExhausted || received > maxQueued+1 {
			t.Errorf("%d events, then %v", received, err)
		}
		x.ended = &envd.ProcessEvent{Event: &envd.ProcessEvent_End{End: &envd.ProcessEvent_EndEvent{Exited: true}}}
		close(x.done)
		err = x.finish(ctx, nil, nil, r, func(*envd.ProcessEvent) error { return nil })
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("after the end of the command: %v", err)
		}
	})
}

// TestAClientThatReadsAgainLosesNothing: it may stall for less than slowClient. Cost: none, as above.
func TestAClientThatReadsAgainLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader()
		x := &command{readers: map[*reader]bool{r: true}, done: make(chan struct{})}
		x.ended = &envd.ProcessEvent{Event: &envd.ProcessEvent_End{End: &envd.ProcessEvent_EndEvent{Exited: true}}}
		const each = maxQueued
		var streams sync.WaitGroup
		for range 2 {
			streams.Go(func() {
				for range each {
					x.send(&envd.ProcessEvent{})
				}
			})
		}
		go func() { streams.Wait(); close(x.done) }()
		time.Sleep(slowClient - time.Second)
		ctx := context.WithValue(t.Context(), sandboxKey{}, visit{call: &call{}})
		received := 0
		err := x.follow(ctx, nil, nil, r, func(*envd.ProcessEvent) error {
			if received++; received > 2*each+2 {
				return errors.New("too many")
			}
			return nil
		})
		if err != nil || received != 2*each+2 {
			t.Errorf("%d events, then %v; want the start, %d of output and the end", received, err, 2*each)
		}
	})
}

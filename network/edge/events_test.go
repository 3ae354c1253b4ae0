//go:build linux

package edge

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/network"
)

// A client in the sandbox cannot hide a decision by requests with long paths, of which no message can hold several.
func TestLongEventsReachTheSupervisor(t *testing.T) {
	ours, theirs, err := fdsock.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	s, supervisor := server{ours}, fdsock.FromFD(int(theirs.Fd()))
	long := strings.Repeat("<", 256<<10) // which JSON escapes
	var all []network.Event
	var q queue
	q.start(func(batch []network.Event) { all = append(all, batch...) })
	const events = 16
	for range events - 1 {
		q.put(network.Event{Kind: network.HTTP, Method: long, Path: "/" + long, Why: long})
	}
	q.put(network.Event{Kind: network.HTTP, Path: "/short"})
	q.stop()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.sendEvents(all)
		_ = ours.Close()
	}()
	var got []network.Event
	for {
		text, _, err := supervisor.Receive()
		if err != nil {
			break
		}
		var m network.Message
		if err := exactjson.Decode(text, &m); err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Events...)
	}
	<-sent
	if len(got) != events || got[events-1].Path != "/short" {
		t.Fatalf("%d of %d events came", len(got), events)
	}
	if want := "/" + long[:maxField-1] + "…"; got[0].Path != want {
		t.Errorf("a long path came with %d bytes, want %d", len(got[0].Path), len(want))
	}
}

// The events of requests that are allowed share messages; a refusal is passed on at once, after those before it.
func TestEventsOfRequestsWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all [][]network.Event
		got := func() [][]network.Event {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return all
		}
		var q queue
		q.start(func(batch []network.Event) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, batch)
		})
		request := network.Event{Kind: network.HTTP, Allowed: true}
		for range 20 {
			q.put(request)
			if batches := got(); len(batches) > 0 {
				t.Errorf("%d batches of events that wait for others", len(batches))
			}
		}
		time.Sleep(gatherTime)
		if batches := got(); len(batches) != 1 || len(batches[0]) != 20 {
			t.Fatalf("after %v: %d batches", gatherTime, len(batches))
		}
		q.put(request)
		q.put(network.Event{Kind: network.HTTP, Why: "refused"})
		if batches := got(); len(batches) != 2 || len(batches[1]) != 2 || batches[1][1].Why != "refused" {
			t.Errorf("with a refusal: %d batches", len(batches))
		}
		q.put(request)
		synctest.Wait()
		q.stop()
		if batches := got(); len(batches) != 3 {
			t.Errorf("at the end: %d batches", len(batches))
		}
	})
}

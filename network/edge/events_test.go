//go:build linux

package edge

import (
	"strings"
	"testing"

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
	for range maxBatch - 1 {
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
	if len(got) != maxBatch || got[maxBatch-1].Path != "/short" {
		t.Fatalf("%d of %d events came", len(got), maxBatch)
	}
	if want := "/" + long[:maxField-1] + "…"; got[0].Path != want {
		t.Errorf("a long path came with %d bytes, want %d", len(got[0].Path), len(want))
	}
}

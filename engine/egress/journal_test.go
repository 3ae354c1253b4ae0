package egress

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/network"
)

// TestEachReasonOfARefusedRequestIsAnEvent: a secret for another host must not hide that the budget was used up.
func TestEachReasonOfARefusedRequestIsAnEvent(t *testing.T) {
	state := t.TempDir()
	j := &Journal{
		path: filepath.Join(state, Events), name: "t", announced: map[announcement]bool{},
		events: events.New(state, func(text string) { t.Error(text) }, nil),
	}
	for _, why := range []string{"the secret KEY is for another host", "the budget is used up", "the secret KEY is for another host"} {
		j.Put(network.Event{Kind: network.HTTP, Name: "api.example.com", Port: 443, Why: why})
	}
	j.Put(network.Event{Kind: network.TCP, Name: "b.example.com", Port: 443, Why: "no rule"})
	j.Put(network.Event{Kind: network.TCP, Name: "b.example.com", Port: 443, Why: "no rule, again"})
	var seen []string
	watch := func(limit, why string) { seen = append(seen, limit+": "+why) }
	j.WatchSpent(watch)
	if seen != nil {
		t.Errorf("spent: %q", seen)
	}
	for range 2 {
		j.Put(network.Event{Kind: network.HTTP, Name: "api.example.com", Why: "no tokens left", Spent: &network.SpentLimit{Limit: "tokens", Value: 9}})
	}
	j.WatchSpent(nil)
	j.Put(network.Event{Kind: network.HTTP, Name: "api.example.com", Why: "no requests left", Spent: &network.SpentLimit{Limit: "requests", Value: 1}})
	j.WatchSpent(watch) // what was refused before it
	if want := []string{"tokens: no tokens left", "tokens: no tokens left", "requests: no requests left"}; !slices.Equal(seen, want) {
		t.Errorf("spent: %q, want %q", seen, want)
	}
	files, err := filepath.Glob(filepath.Join(state, "events", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for why, times := range map[string]int{"for another host": 1, "used up": 1, `"no rule"`: 1, "again": 0, events.LimitReached: 2} {
		if got := strings.Count(string(text), why); got != times {
			t.Errorf("%q is in %d events, want %d\n%s", why, got, times, text)
		}
	}
}

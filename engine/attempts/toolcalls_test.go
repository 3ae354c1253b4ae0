package attempts

import (
	"fmt"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestRefusedCallsAreListedOnceAndBounded calls refused tools in a loop, from many processes as it seems, which
// count in the sandbox's directory, and from one, which counts in memory.
func TestRefusedCallsAreListedOnceAndBounded(t *testing.T) {
	dir := treetest.Dir(t)
	var c ToolCalls
	for name, refused := range map[string]func(by, tool string) (events.Data, bool){
		"in a file": func(by, tool string) (events.Data, bool) { return RefusedCall(dir, by, tool, "mcp__*") },
		"in memory": func(by, tool string) (events.Data, bool) { return c.Refused(by, tool, "mcp__*") },
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var all sync.WaitGroup
			seen, last := map[string]int{}, 0
			call := func(by, tool string) {
				d, ok := refused(by, tool)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case ok && len(d.Paths) == 0:
					last++
				case ok:
					seen[d.Name+" "+d.Reason+" "+fmt.Sprint(d.Paths)]++
				}
			}
			for range 4 {
				all.Go(func() {
					for i := range 60 {
						call("hook", fmt.Sprintf("mcp__%d", i%30))
						call("mcp", "mcp__0")
					}
				})
			}
			all.Wait()
			if len(seen) != 31 || last != 0 {
				t.Errorf("%d tools are listed, want 31; %d times the end of the list: %v", len(seen), last, seen)
			}
			for i := range 2 * maxAttempts {
				call("hook", fmt.Sprintf("mcp__more__%d", i))
			}
			if len(seen) != maxAttempts || last != 1 {
				t.Errorf("%d tools are listed, want %d; %d times the end of the list, want 1", len(seen), maxAttempts, last)
			}
			for what, n := range seen {
				if n != 1 {
					t.Errorf("%s: %d events", what, n)
				}
			}
			if seen["hook tools: hook mcp__* [mcp__7]"] != 1 {
				t.Errorf("the event does not say what was refused: %v", seen)
			}
		})
	}
	// Without the directory the calls are events.
	for range 2 {
		if _, ok := RefusedCall(dir+"/none", "hook", "tool", "*"); !ok {
			t.Error("a call that cannot be counted is no event")
		}
	}
}

package spare

import (
	"runtime"
	"testing"
)

// TestLoop: each server is created with the initial processors, and has more afterwards.
func TestLoop(t *testing.T) {
	began := initial()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for range 2 {
		made := 0
		Loop(func() { made = runtime.GOMAXPROCS(0) })
		if made != began {
			t.Errorf("a server was made with %d processors, not with %d", made, began)
		}
		if has := runtime.GOMAXPROCS(0); has != began+more {
			t.Errorf("it answers with %d processors, not with %d", has, began+more)
		}
	}
}

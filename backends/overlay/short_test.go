//go:build linux

package overlay

import (
	"fmt"
	"os"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
)

// On a kernel that accepts few layers, no chain is longer, however often the fork is sealed.
func TestChainsStayWithinTheKernelsLimit(t *testing.T) {
	treetest.NeedRoot(t)
	b, tree := onEmptyTree(t)
	b.store.ChainLimits = func() (mergeAt, most int) { return 5, 10 }
	_, err := b.Capture(t.Context(), tree, "base")
	if err == nil {
		_, err = b.Fork(t.Context(), "base", "f")
	}
	if err != nil {
		t.Fatal(err)
	}
	longest := 0
	for i := range 40 {
		f, err := b.LookupFork(t.Context(), "f")
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, len(f.View.Overlay.Lower))
		if err := os.WriteFile(fmt.Sprint(f.View.Overlay.Upper, "/", i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Seal(t.Context(), "f", snapshot.ID(fmt.Sprint("s", i)), snapshot.Idle); err != nil {
			t.Fatal(err)
		}
	}
	if longest < 6 || longest > 11 {
		t.Errorf("a fork had %d lower layers", longest)
	}
	s, err := b.Lookup(t.Context(), "s39")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, layer := range s.View.Overlay.Lower {
		entries, err := os.ReadDir(layer)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			seen[e.Name()] = true
		}
	}
	if len(seen) != 40 {
		t.Errorf("%d of 40 files are in the layers of the fork", len(seen))
	}
}

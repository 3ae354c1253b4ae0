//go:build linux

package overlay

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
)

// onEmptyTree opens the backend for an empty tree.
func onEmptyTree(t *testing.T) (*backend, snapshot.Tree) {
	t.Helper()
	dir := treetest.Dir(t)
	tree := snapshot.Tree{Path: dir + "/tree"}
	if err := os.Mkdir(tree.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := open(snapshot.Place{Tree: tree, Dir: dir + "/state"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b, tree
}

// A look-up of a fork during its removal, while its file becomes the record of another fork, must
// never return the other fork.
func TestALookUpNeverReturnsAnotherRecord(t *testing.T) {
	b, tree := onEmptyTree(t)
	if _, err := b.Capture(t.Context(), tree, "base"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var found atomic.Int64
	end := time.Now().Add(time.Second)
	for w := range 4 {
		var now atomic.Pointer[snapshot.ForkID]
		all.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				id := snapshot.ForkID(fmt.Sprintf("f%d-%d", w, i))
				now.Store(&id)
				if _, err := b.Fork(t.Context(), "base", id); err != nil {
					t.Error(err)
				}
				if err := b.RemoveFork(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		})
		for range 4 {
			all.Go(func() {
				for time.Now().Before(end) {
					id := now.Load()
					if id == nil {
						continue
					}
					r, err := store.Find(string(*id), b.store.ForkPath(*id))
					if err != nil {
						continue
					}
					found.Add(1)
					if !strings.HasPrefix(r.Upper, string(*id)+"-") {
						t.Errorf("looking up %s returns the record %+v", *id, r)
						return
					}
				}
			})
		}
	}
	all.Wait()
	if found.Load() == 0 {
		t.Error("no look-up ever succeeded")
	}
}

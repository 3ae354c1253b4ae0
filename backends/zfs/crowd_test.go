//go:build vm

package zfs_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// atOnce calls do n times concurrently; each call must succeed.
func atOnce(t *testing.T, n int, do func(id string) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := do(fmt.Sprintf("n%03d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestTwoHundredConcurrentClones makes two hundred datasets, checks that each is separate, and removes
// all.
func TestTwoHundredConcurrentClones(t *testing.T) {
	const n = 200
	p := place(t)
	b := opened(t, p)
	must(t, os.WriteFile(p.Tree.Path+"/file", []byte("real"), 0o600))
	began := time.Now()
	atOnce(t, n, func(id string) error {
		_, f, err := b.Clone(t.Context(), p.Tree, snapshot.ID(id), snapshot.ForkID(id))
		if err == nil {
			err = os.WriteFile(f.View.Path+"/file", []byte(id), 0o600)
		}
		return err
	})
	t.Logf("%d clones at once take %v", n, time.Since(began).Round(time.Second))
	reads(t, p.Tree.Path+"/file", "real")
	seen := map[string]bool{}
	atHome := of(t, p) + "/.snapfs/"
	for name := range strings.FieldsSeq(sh(t, "list", "-H", "-r", "-o", "name", of(t, p))) {
		if strings.HasPrefix(name, atHome) {
			seen[name] = true
		}
	}
	ids, forks, err := b.List(t.Context())
	if must(t, err); len(seen) != n || len(ids) != n || len(forks) != n {
		t.Errorf("there are %d datasets, %d snapshots and %d forks, want %d of each", len(seen), len(ids), len(forks), n)
	}
	for _, id := range forks {
		f, err := b.LookupFork(t.Context(), id)
		must(t, err)
		reads(t, f.View.Path+"/file", string(id))
	}
	began = time.Now()
	atOnce(t, n, func(id string) error { return b.RemoveFork(t.Context(), snapshot.ForkID(id)) })
	atOnce(t, n, func(id string) error { return b.Remove(t.Context(), snapshot.ID(id)) })
	must(t, b.Sweep(t.Context()))
	t.Logf("removing and sweeping them takes %v", time.Since(began).Round(time.Second))
	if left := strings.Fields(sh(t, "list", "-H", "-r", "-t", "all", "-o", "name", of(t, p))); len(left) != 2 {
		t.Errorf("left behind are %q", left)
	}
}

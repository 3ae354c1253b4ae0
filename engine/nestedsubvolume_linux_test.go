package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// nestedFile is a file of the nested subvolume that [withNestedSubvolume] makes.
func nestedFile(n int) string { return fmt.Sprintf("sub/f%d", n) }

// withNestedSubvolume returns a bench on btrfs, whose workspace holds a subvolume sub with 1,000 files.
func withNestedSubvolume(t *testing.T) *bench {
	t.Helper()
	b := benchIn(t, treetest.Btrfs(t), treetest.Dir(t))
	if err := btrfs.Create(int(treetest.Open(t, b.workspace).Fd()), "sub"); err != nil {
		t.Fatal(err)
	}
	for n := range 1000 {
		b.write(nestedFile(n), "old")
	}
	return b
}

// candidates returns how many paths the backend of the sandbox name lists as possibly changed since its base.
func (b *bench) candidates(name string) (n int, whole bool) {
	b.t.Helper()
	rec, err := b.Catalog().Get(name)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, tree := range rec.Trees {
		if tree.Path != b.workspace && tree.Path != filepath.Dir(b.workspace) {
			continue
		}
		back, err := b.Host.BackendOf(b.t.Context(), tree)
		if err != nil {
			b.t.Fatal(err)
		}
		lister, ok := back.(snapshot.ChangeLister)
		if !ok {
			b.t.Fatalf("%T lists no changes", back)
		}
		for c, err := range lister.ListChanges(b.t.Context(), tree.Base, tree.Fork) {
			if err != nil {
				b.t.Fatal(err)
			}
			n++
			whole = whole || c.Tree
		}
	}
	return n, whole
}

func TestANestedSubvolumeIsComparedByItsChangesAfterRollbacks(t *testing.T) {
	treetest.NeedRoot(t)
	b := withNestedSubvolume(t)
	b.new("s")
	next := 0
	change := func() {
		t.Helper()
		next++
		b.in("s", "printf new > "+nestedFile(next))
	}
	change()
	want := []string{"M " + nestedFile(1)}
	for _, state := range []string{"one", "two"} {
		if _, err := b.Snapshot(t.Context(), "s", state); err != nil {
			t.Fatal(err)
		}
		if err := b.Rollback(t.Context(), "s", state); err != nil {
			t.Fatal(err)
		}
		change()
		last := "M " + nestedFile(next)
		want = append(want, last)
		b.expect("s", state, "", last)
		b.expect("s", "", "", want...)
		if n, whole := b.candidates("s"); whole || n > 10 {
			t.Errorf("rolled back to %s: %d candidates, a whole subtree among them: %v", state, n, whole)
		}
	}
	b.expect("s", "one", "two", "M "+nestedFile(2))
	if _, err := b.Reconcile.Promote(t.Context(), "s", strictly()); err != nil {
		t.Fatal(err)
	}
	for n, content := range []string{"old", "new", "new", "new", "old"} {
		if got := b.read(nestedFile(n)); got != content {
			t.Errorf("after the promotion, %s holds %q, not %q", nestedFile(n), got, content)
		}
	}
	if _, err := os.Stat(b.workspace + "/sub"); err != nil {
		t.Error(err)
	}
}

//go:build linux

package snapshottest

import (
	"maps"
	"os"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
)

// comparesSealed tests that [snapshot.SealComparer] misses no change and reports none where nothing has changed: after
// random scripts, and after small changes of which each leaves the rest of a file's attributes as they were.
func comparesSealed(x *workbench) {
	for seed := range x.seeds() {
		if x.Failed() {
			return
		}
		comparesScripts(x.at(seed), seed)
	}
	x.write("dir/file", "one")
	x.write("other", "one")
	x.capture("s1")
	x.fork("s1", "f1")
	mtime := time.Now().Add(-time.Hour)
	for i, change := range []struct {
		what string
		do   func(dir string) error
	}{
		{"the first change", func(dir string) error { return os.WriteFile(dir+"/dir/new", []byte("one"), 0o644) }},
		{"a time", func(dir string) error { return os.Chtimes(dir+"/dir/new", mtime, mtime) }},
		{"content of equal size and time", func(dir string) error {
			if err := os.WriteFile(dir+"/dir/new", []byte("two"), 0o644); err != nil {
				return err
			}
			return os.Chtimes(dir+"/dir/new", mtime, mtime)
		}},
		{"a mode", func(dir string) error { return os.Chmod(dir+"/dir/new", 0o600) }},
		{"a name", func(dir string) error { return os.Rename(dir+"/dir/new", dir+"/dir/now") }},
		{"a file of the base", func(dir string) error { return os.WriteFile(dir+"/other", []byte("two"), 0o644) }},
		{"a removal", func(dir string) error { return os.Remove(dir + "/dir/file") }},
		{"a link", func(dir string) error { return os.Symlink("a", dir+"/link") }},
		{"a link's target", func(dir string) error {
			if err := os.Remove(dir + "/link"); err != nil {
				return err
			}
			return os.Symlink("b", dir+"/link")
		}},
		{"a removal of a new file", func(dir string) error { return os.Remove(dir + "/dir/now") }},
	} {
		id := snapshot.ID("k" + strconv.Itoa(i))
		x.in(x.view("f1"), func(string) { x.seal("f1", id, snapshot.InUse) })
		x.changedSince(id, false, "right after a seal, before "+change.what)
		x.in(x.view("f1"), func(dir string) { x.must(change.do(dir)) })
		x.changedSince(id, true, change.what)
	}
	x.in(x.view("f1"), func(dir string) {
		x.seal("f1", "last", snapshot.InUse)
		x.put(dir, "made", "now")
	})
	if changed, known := as[snapshot.SealComparer](x.b).ChangedSinceSeal(x.Context(), "last", "f1"); os.Geteuid() == 0 && !(changed && known) {
		x.Errorf("a new file: changed %t, known %t", changed, known)
	}
	x.clean()
}

// comparesScripts seals a fork in use after a random script, and again after each of some short ones.
func comparesScripts(x *workbench, seed int) {
	w := treetest.NewWriter(uint64(seed), x.powers())
	x.play(w.Script(100), x.place.Tree.Path)
	w.Freeze()
	x.capture("s1")
	x.fork("s1", "f1")
	last := snapshot.ID("s1")
	for _, id := range []snapshot.ID{"s2", "s3", "s4"} {
		root := x.reach(x.view("f1"))
		w = x.playBoth(w, 20, root, "")
		x.must(root.Close())
		x.changedSince(last, !maps.Equal(x.nodes(x.snap(last)), x.nodes(x.view("f1"))), "a random script")
		x.in(x.view("f1"), func(string) { x.seal("f1", id, snapshot.InUse) })
		w.Freeze()
		x.changedSince(id, false, "right after a seal")
		last = id
	}
	x.clean()
}

// changedSince checks that the backend does not report a fork as changed since a snapshot if it has not, and the other
// way round. what describes the change in failures.
func (x *workbench) changedSince(id snapshot.ID, want bool, what string) {
	x.Helper()
	changed, known := as[snapshot.SealComparer](x.b).ChangedSinceSeal(x.Context(), id, "f1")
	if known && changed != want {
		x.Errorf("%s: the backend reports changed %t since the seal, want %t", what, changed, want)
	}
}

//go:build linux

package btrfs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// driftOf returns the sorted drift of a snapshot's tree; a slash at the end means the whole
// subtree.
func driftOf(t testing.TB, b *Backend, id snapshot.ID) []string {
	t.Helper()
	var places []string
	for touch, err := range b.DetectDrift(t.Context(), id) {
		if err != nil {
			t.Fatal(err)
		}
		if touch.Tree {
			touch.Path += "/"
		}
		places = append(places, touch.Path)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

func TestDriftInNestedSubvolumesHasTheirPaths(t *testing.T) {
	b, tree := fixture(t)
	subvolume(t, tree.Path+"/sub")
	mkdirAll(t, tree.Path+"/sub/dir")
	subvolume(t, tree.Path+"/sub/dir/deep")
	subvolume(t, tree.Path+"/other")
	write(t, tree.Path+"/sub/file", "sub")
	write(t, tree.Path+"/sub/dir/deep/file", "deep")
	write(t, tree.Path+"/sub/dir/deep/still", "still")
	clone(t, b, tree, "1")
	if got := driftOf(t, b, "s1"); len(got) > 0 {
		t.Errorf("an unchanged tree with nested subvolumes has the drift %q", got)
	}
	write(t, tree.Path+"/sub/dir/deep/file", "changed")
	write(t, tree.Path+"/sub/new", "new")
	want := []string{"sub", "sub/dir/deep/file", "sub/new/"}
	if got := driftOf(t, b, "s1"); !slices.Equal(got, want) {
		t.Errorf("the drift is %q, want %q", got, want)
	}
	if err := os.Rename(tree.Path+"/other", tree.Path+"/moved"); err != nil {
		t.Fatal(err)
	}
	got := driftOf(t, b, "s1")
	for _, place := range []string{"other/", "moved/"} {
		if !slices.Contains(got, place) {
			t.Errorf("the drift of a renamed subvolume is %q, without %q", got, place)
		}
	}
}

func mkdirAll(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestDriftOfADirectoryOmitsItsSiblings(t *testing.T) {
	_, tree := fixture(t)
	inner := snapshot.Tree{Path: tree.Path + "/a/b"}
	mkdirAll(t, inner.Path)
	write(t, inner.Path+"/file", "inner")
	b := opened(t, inner)
	clone(t, b, inner, "1")
	write(t, tree.Path+"/a/beside", "new")
	write(t, tree.Path+"/file", "changed")
	if got := driftOf(t, b, "s1"); len(got) > 0 {
		t.Errorf("the drift is %q", got)
	}
	write(t, inner.Path+"/file", "changed")
	if got := driftOf(t, b, "s1"); !slices.Equal(got, []string{"file"}) {
		t.Errorf("the drift is %q", got)
	}
}

func TestDriftOfASealedForkIsRelativeToItsBase(t *testing.T) {
	b, tree := fixture(t)
	_, f := clone(t, b, tree, "1")
	write(t, f.View.Path+"/sandbox", "mine")
	if _, err := b.Seal(t.Context(), "f1", "s2", snapshot.Idle); err != nil {
		t.Fatal(err)
	}
	write(t, tree.Path+"/file", "changed")
	got := driftOf(t, b, "s2")
	for _, place := range []string{"sandbox/", "file"} {
		if !slices.Contains(got, place) {
			t.Errorf("the drift is %q, without %q", got, place)
		}
	}
}

func TestDriftAgainstAnotherSubvolumeIsNotSupported(t *testing.T) {
	b, tree := fixture(t)
	clone(t, b, tree, "1")
	if err := os.Rename(tree.Path, tree.Path+".old"); err != nil {
		t.Fatal(err)
	}
	subvolume(t, tree.Path)
	for _, err := range b.DetectDrift(t.Context(), "s1") {
		if !errors.Is(err, errs.ErrNotSupported) {
			t.Errorf("err = %v", err)
		}
	}
	if err := os.RemoveAll(tree.Path); err != nil {
		t.Fatal(err)
	}
	for _, err := range b.DetectDrift(t.Context(), "s1") {
		if !errors.Is(err, errs.ErrNotFound) {
			t.Errorf("the drift of a deleted tree: %v", err)
		}
	}
}

// TestDriftIsIndependentOfTheTreesSize allows five times the 20 ms of an idle machine. The minimum of
// several tries counts, because other work can only make a try slower.
func TestDriftIsIndependentOfTheTreesSize(t *testing.T) {
	const most = 100 * time.Millisecond
	treetest.NeedRoot(t)
	b, tree := fixture(t)
	for d := range 20 {
		dir := fmt.Sprintf("%s/d%d", tree.Path, d)
		mkdirAll(t, dir)
		for f := range 500 {
			write(t, fmt.Sprintf("%s/f%d", dir, f), "content")
		}
	}
	clone(t, b, tree, "1")
	for i := range 10 {
		write(t, fmt.Sprintf("%s/d%d/f%d", tree.Path, i*2, i), "changed")
	}
	driftOf(t, b, "s1") // syncs the filesystem
	least := time.Hour
	for range 10 {
		began := time.Now()
		if n := len(driftOf(t, b, "s1")); n != 10 {
			t.Fatalf("%d places", n)
		}
		least = min(least, time.Since(began))
	}
	if least > most {
		t.Errorf("listing 10 changed files of 10,000 takes %v, more than %v", least, most)
	}
}

//go:build linux

package btrfs

import (
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
)

// listed returns the sorted candidates below dir, but for directories; a slash at the end means a whole subtree.
func listed(t testing.TB, dir string, all iter.Seq2[snapshot.Candidate, error]) []string {
	t.Helper()
	var paths []string
	for c, err := range all {
		switch {
		case err != nil:
			t.Fatal(err)
		case c.Tree:
			paths = append(paths, c.Path+"/")
		case !c.Named && strings.HasPrefix(c.Path, dir+"/"):
			paths = append(paths, c.Path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func wantListed(t testing.TB, what string, all iter.Seq2[snapshot.Candidate, error], want ...string) {
	t.Helper()
	if got := listed(t, "sub", all); !slices.Equal(got, want) {
		t.Errorf("%s lists %d paths %.10q, want %q", what, len(got), got, want)
	}
}

// rollBack seals the fork f<from> as s<to>, and replaces it by the fork f<to> of that snapshot, as a rollback does.
func rollBack(t testing.TB, b *Backend, from, to string) string {
	t.Helper()
	ctx := t.Context()
	if _, err := b.Seal(ctx, snapshot.ForkID("f"+from), snapshot.ID("s"+to), snapshot.Idle); err != nil {
		t.Fatal(err)
	}
	f, err := b.Fork(ctx, snapshot.ID("s"+to), snapshot.ForkID("f"+to))
	if err == nil {
		err = b.RemoveFork(ctx, snapshot.ForkID("f"+from))
	}
	if err == nil {
		err = b.Sweep(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.View.Path
}

// nestedFixture returns a tree with the nested subvolumes sub, which has 1,000 files, and sub/dir/deep.
func nestedFixture(t testing.TB) (*Backend, snapshot.Tree) {
	t.Helper()
	treetest.NeedRoot(t)
	b, tree := fixture(t)
	sub := subvolume(t, tree.Path+"/sub")
	for i := range 1000 {
		write(t, fmt.Sprintf("%s/f%d", sub, i), "old")
	}
	mkdirAll(t, sub+"/dir")
	write(t, subvolume(t, sub+"/dir/deep")+"/file", "old")
	return b, tree
}

func TestChangesInNestedSubvolumesAreListedAfterRollbacks(t *testing.T) {
	b, tree := nestedFixture(t)
	ctx := t.Context()
	_, f := clone(t, b, tree, "1")
	write(t, f.View.Path+"/sub/f1", "new")
	view := rollBack(t, b, "1", "2")
	wantListed(t, "a fork rolled back", b.ListChanges(ctx, "s1", "f2"), "sub/f1")
	write(t, view+"/sub/f2", "new")
	wantListed(t, "since the snapshot", b.ListChanges(ctx, "s2", "f2"), "sub/f2")
	wantListed(t, "since the base", b.ListChanges(ctx, "s1", "f2"), "sub/f1", "sub/f2")

	view = rollBack(t, b, "2", "3")
	write(t, view+"/sub/dir/deep/file", "new")
	wantListed(t, "since the second snapshot", b.ListChanges(ctx, "s3", "f3"), "sub/dir/deep/file")
	wantListed(t, "since the first snapshot", b.ListChanges(ctx, "s2", "f3"), "sub/dir/deep/file", "sub/f2")
	wantListed(t, "since the base, rolled back twice", b.ListChanges(ctx, "s1", "f3"), "sub/dir/deep/file", "sub/f1", "sub/f2")
	wantListed(t, "between snapshots", b.ListChangesBetween(ctx, "s2", "s3"), "sub/f2")
	wantListed(t, "between snapshots, backwards", b.ListChangesBetween(ctx, "s3", "s1"), "sub/f1", "sub/f2")

	if err := b.Prefork(ctx, "s3", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Fork(ctx, "s3", "f4"); err != nil {
		t.Fatal(err)
	}
	wantListed(t, "a fork that was made in advance", b.ListChanges(ctx, "s1", "f4"), "sub/f1", "sub/f2")
	write(t, tree.Path+"/sub/f9", "real")
	wantListed(t, "drift", b.DetectDrift(ctx, "s3"), "sub/f1", "sub/f2", "sub/f9")
}

// TestNestedSubvolumesWithUnknownDescentAreListedWhole removes or truncates the record of the lineage, as an
// earlier snapfs or a crash leaves it.
func TestNestedSubvolumesWithUnknownDescentAreListedWhole(t *testing.T) {
	for _, record := range []string{"", nestedFormat, nestedFormat + "0b4b7a1c 7f2c:x\nend\n"} {
		b, tree := nestedFixture(t)
		clone(t, b, tree, "1")
		rollBack(t, b, "1", "2")
		file := b.home() + "/" + b.key + "/forks/f2/" + nestedName
		err := os.Remove(file)
		if record != "" {
			err = os.WriteFile(file, []byte(record), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		wantListed(t, fmt.Sprintf("with the record %q", record), b.ListChanges(t.Context(), "s1", "f2"), "sub/")
		wantListed(t, "since the parent", b.ListChanges(t.Context(), "s2", "f2"))
	}
}

// TestANestedSubvolumeReplacedByItsOwnSnapshotIsListedWhole makes, inside of a fork, a snapshot of a nested
// subvolume at that subvolume's place. Its files differ from the base's, and its parent is not recorded.
func TestANestedSubvolumeReplacedByItsOwnSnapshotIsListedWhole(t *testing.T) {
	b, tree := nestedFixture(t)
	_, f := clone(t, b, tree, "1")
	sub := f.View.Path + "/sub"
	write(t, sub+"/f5", "new")
	top := treetest.Open(t, f.View.Path)
	src := treetest.Open(t, sub)
	err := snapshotInto(int(src.Fd()), int(top.Fd()), "copy", false)
	if err == nil {
		err = os.Rename(sub, f.View.Path+"/before")
	}
	if err == nil {
		err = os.Rename(f.View.Path+"/copy", sub)
	}
	if err != nil {
		t.Fatal(err)
	}
	wantListed(t, "the fork", b.ListChanges(t.Context(), "s1", "f1"), "before/", "sub/")
	view := rollBack(t, b, "1", "2")
	write(t, view+"/sub/f6", "new")
	wantListed(t, "since the base", b.ListChanges(t.Context(), "s1", "f2"), "before/", "sub/")
	wantListed(t, "since the snapshot", b.ListChanges(t.Context(), "s2", "f2"), "sub/f6")
}

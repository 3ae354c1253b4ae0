//go:build linux

package overlay_test

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// places returns candidates as text, with a star after whole subtrees.
func places(t *testing.T, touched iter.Seq2[snapshot.Candidate, error]) string {
	t.Helper()
	var list []string
	for at, err := range touched {
		must(t, err)
		if at.Tree {
			at.Path += "*"
		}
		list = append(list, at.Path)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestTouchedListsExactlyTheChanges(t *testing.T) {
	treetest.NeedRoot(t)
	s := newFixture(t, snapshottest.OnDisk(t))
	for _, dir := range []string{"moved", "again", "same/deep"} {
		must(t, os.MkdirAll(s.place.Tree.Path+"/"+dir, 0o755))
		must(t, os.WriteFile(s.place.Tree.Path+"/"+dir+"/file", nil, 0o644))
		must(t, os.WriteFile(s.place.Tree.Path+"/"+dir+"/other", nil, 0o644))
	}
	s.capture("base")
	s.fork("base", "work")
	s.in("work", func(root *os.File) {
		dir := vfs.FDPath(root) + "/./"
		must(t, errors.Join(
			os.Rename(dir+"moved", dir+"here"),
			os.RemoveAll(dir+"again"), os.Mkdir(dir+"again", 0o755),
			os.Remove(dir+"same/deep/file"),
			os.Mkdir(dir+"new", 0o755), os.WriteFile(dir+"new/file", nil, 0o644)))
	})
	const first = ". again* here* moved* new* same same/deep same/deep/file*"
	if got := places(t, s.ListChanges(t.Context(), "base", "work")); got != first {
		t.Errorf("listed: %s\nwant:    %s", got, first)
	}
	s.seal("work", "s1", snapshot.Idle)
	if got := places(t, s.ListChanges(t.Context(), "s1", "work")); got != "" {
		t.Errorf("right after a seal there are candidates: %s", got)
	}
	s.in("work", func(root *os.File) { must(t, os.Remove(vfs.FDPath(root)+"/./new/file")) })
	if got, want := places(t, s.ListChanges(t.Context(), "s1", "work")), "new new/file*"; got != want {
		t.Errorf("since the seal: %s, want %s", got, want)
	}
	s.in("work", func(root *os.File) { must(t, os.Chmod(vfs.FDPath(root)+"/.", 0o700)) })
	if got, want := places(t, s.ListChanges(t.Context(), "s1", "work")), ". new new/file*"; got != want {
		t.Errorf("with an unreadable root: %s, want %s", got, want)
	}
	if got := places(t, s.ListChangesBetween(t.Context(), "base", "s1")); got != first {
		t.Errorf("between the snapshots: %s, want %s", got, first)
	}
	s.fork("base", "sibling")
	s.in("sibling", func(root *os.File) { must(t, os.Remove(vfs.FDPath(root)+"/./again/file")) })
	if got := places(t, s.ListChanges(t.Context(), "s1", "sibling")); !strings.Contains(got, "here*") || !strings.Contains(got, "again/file*") {
		t.Errorf("the candidates of a fork against a snapshot of another origin are %s", got)
	}
}

// TestAnUnchangedForkIsKnown: the layers of a fork that was sealed in use say without a mount that it is as it was sealed,
// also where the kernel has set attributes of its own, as it does in a directory that was copied up.
func TestAnUnchangedForkIsKnown(t *testing.T) {
	treetest.NeedRoot(t) // it mounts the fork in this process
	s := newFixture(t, snapshottest.OnDisk(t))
	must(t, os.MkdirAll(s.place.Tree.Path+"/dir/deep", 0o755))
	must(t, os.WriteFile(s.place.Tree.Path+"/dir/deep/file", []byte("one"), 0o644))
	s.capture("base")
	s.fork("base", "work")
	s.in("work", func(root *os.File) {
		dir := vfs.FDPath(root) + "/./"
		must(t, errors.Join(
			os.WriteFile(dir+"dir/deep/file", []byte("two"), 0o644), os.Mkdir(dir+"new", 0o755),
			os.WriteFile(dir+"new/file", nil, 0o644), os.Remove(dir+"new/file"), os.Symlink("to", dir+"link")))
	})
	s.seal("work", "s1", snapshot.InUse)
	if changed, known := s.ChangedSinceSeal(t.Context(), "s1", "work"); changed || !known {
		t.Errorf("an unchanged fork: changed %t, known %t", changed, known)
	}
	if _, known := s.ChangedSinceSeal(t.Context(), "base", "work"); known {
		t.Error("the capture of the tree is none of the fork's layers, and the answer is known")
	}
}

// Overlayfs reads the content of a renamed directory from the old path in the tree, and shows the
// directory empty when that has gone. It is listed as lost, and all others are as they were.
func TestALostRedirectTargetIsLostAlone(t *testing.T) {
	treetest.NeedRoot(t)
	s := newFixture(t, snapshottest.OnDisk(t))
	real := s.place.Tree.Path
	for _, dir := range []string{"one", "two", "three"} {
		must(t, errors.Join(os.Mkdir(real+"/"+dir, 0o755), os.WriteFile(real+"/"+dir+"/file", nil, 0o644)))
	}
	s.capture("base")
	s.fork("base", "work")
	s.in("work", func(root *os.File) {
		dir := vfs.FDPath(root) + "/./"
		must(t, errors.Join(os.Rename(dir+"one", dir+"first"), os.Mkdir(dir+"new", 0o755), os.Rename(dir+"two", dir+"new/second"),
			os.Mkdir(dir+"made", 0o755), os.Rename(dir+"made", dir+"remade")))
	})
	lost := func(what string, touched iter.Seq2[snapshot.Candidate, error], want string) {
		t.Helper()
		var got []string
		listed := 0
		for c, err := range touched {
			must(t, err)
			if listed++; c.LostFrom != "" {
				got = append(got, c.Path+"<"+c.LostFrom)
			}
		}
		if slices.Sort(got); strings.Join(got, " ") != want || listed == 0 {
			t.Errorf("%s: of %d paths are lost %q, want %q", what, listed, got, want)
		}
	}
	lost("untouched", s.ListChanges(t.Context(), "base", "work"), "")
	for dir, to := range map[string]string{"one": "first", "two": "new/second"} {
		must(t, os.Rename(real+"/"+dir, real+"/away"))
		lost("without "+dir, s.ListChanges(t.Context(), "base", "work"), to+"<"+dir)
		must(t, os.Rename(real+"/away", real+"/"+dir))
	}
	lost("put back", s.ListChanges(t.Context(), "base", "work"), "")
	s.seal("work", "s1", snapshot.Idle)
	s.in("work", func(root *os.File) {
		dir := vfs.FDPath(root) + "/./"
		must(t, errors.Join(os.RemoveAll(dir+"first"), os.Rename(dir+"new/second", dir+"again"), os.Rename(dir+"remade", dir+"once")))
		must(t, errors.Join(os.Rename(dir+"three", dir+"again/third")))
	})
	must(t, os.Rename(real+"/one", real+"/away"))
	lost("what was deleted since", s.ListChanges(t.Context(), "base", "work"), "")
	lost("what a state has", s.ListChangesBetween(t.Context(), "base", "s1"), "first<one")
	must(t, os.Rename(real+"/three", real+"/further"))
	lost("in another renamed one", s.ListChanges(t.Context(), "s1", "work"), "again/third<three")
	must(t, os.Rename(real+"/two", real+"/furthest"))
	lost("in another lost one", s.ListChanges(t.Context(), "s1", "work"), "again<two")
}

// An ordinary user cannot give the root of a layer to another owner. That difference is not listed
// as a change.
func TestTheOwnerOfAnothersRootIsNoChange(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	s := newFixture(t, snapshot.Place{Tree: snapshot.Tree{Path: "/usr/bin"}, Dir: t.TempDir() + "/state"})
	s.capture("base")
	s.fork("base", "work")
	if got := places(t, s.ListChanges(t.Context(), "base", "work")); got != "" {
		t.Errorf("listed: %s", got)
	}
}

func BenchmarkVerbs(b *testing.B) {
	treetest.NeedRoot(b)
	s := newFixture(b, snapshottest.OnDisk(b))
	must(b, os.WriteFile(s.place.Tree.Path+"/file", nil, 0o644))
	n := 0
	b.Run("capture and fork", func(b *testing.B) {
		for b.Loop() {
			n++
			id := fmt.Sprintf("n%d", n)
			_, err := s.Capture(b.Context(), s.place.Tree, snapshot.ID(id))
			must(b, err)
			_, err = s.Fork(b.Context(), snapshot.ID(id), snapshot.ForkID(id))
			must(b, err)
		}
	})
	s.capture("base")
	s.fork("base", "work")
	b.Run("seal idle", func(b *testing.B) {
		for b.Loop() {
			n++
			s.seal("work", snapshot.ID(fmt.Sprintf("n%d", n)), snapshot.Idle)
		}
	})
	f, err := s.Fork(b.Context(), "base", "changed")
	must(b, err)
	for i := range 100 {
		dir := fmt.Sprintf("%s/dir%d", f.View.Overlay.Upper, i%10)
		must(b, os.MkdirAll(dir, 0o755))
		must(b, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o644))
	}
	b.Run("touched 100", func(b *testing.B) {
		for b.Loop() {
			count := 0
			for _, err := range s.ListChanges(b.Context(), "base", "changed") {
				must(b, err)
				count++
			}
			if count != 111 {
				b.Fatalf("%d candidates", count)
			}
		}
	})
}

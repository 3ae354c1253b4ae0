//go:build vm

package zfs_test

import (
	"errors"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// wait is longer than a tick of the clock for timestamps.
const wait = 30 * time.Millisecond

// A changedSet has the listed paths, with true for whole subtrees.
type changedSet map[string]bool

func collected(t testing.TB, seq iter.Seq2[snapshot.Candidate, error]) changedSet {
	t.Helper()
	all := changedSet{}
	for touch, err := range seq {
		must(t, err)
		all[touch.Path] = all[touch.Path] || touch.Tree
	}
	return all
}

// has reports whether a path is covered.
func (s changedSet) has(p string) bool {
	if _, at := s[p]; at {
		return true
	}
	for p != "." {
		if p = path.Dir(p); s[p] {
			return true
		}
	}
	return false
}

func put(t testing.TB, file, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, err)
	must(t, f.Close())
}

// everyWay runs make on a tree, captures it, runs change on the fork and on the tree itself, and
// lists the changes in each of the three ways.
func everyWay(t *testing.T, p snapshot.Place, make, change func(t *testing.T, tree string), places ...string) {
	t.Helper()
	b := opened(t, p)
	make(t, p.Tree.Path)
	time.Sleep(wait)
	_, f := grown(t, b, p)
	change(t, f.View.Path)
	change(t, p.Tree.Path)
	ways := map[string]changedSet{
		"a fork":        collected(t, b.ListChanges(t.Context(), "s1", "f1")),
		"the real tree": collected(t, b.DetectDrift(t.Context(), "s1")),
	}
	_, err := b.Seal(t.Context(), "f1", "s2", snapshot.Idle)
	must(t, err)
	ways["a sealed fork"] = collected(t, b.ListChangesBetween(t.Context(), "s1", "s2"))
	ways["a sealed fork, from behind"] = collected(t, b.ListChangesBetween(t.Context(), "s2", "s1"))
	for way, set := range ways {
		for _, place := range places {
			if !set.has(place) {
				t.Errorf("%s: the changed path %s is missing in %v", way, place, set)
			}
		}
		if set["."] {
			t.Errorf("%s: the whole tree is listed", way)
		}
	}
	must(t, b.Remove(t.Context(), "s2"))
	gone(t, b)
}

// ZFS stores one parent for a file, that of its last link, and zfs-diff(8) then finds no name in
// it.
func TestAFileWhoseLastLinkWasRemovedIsListed(t *testing.T) {
	everyWay(t, place(t), func(t *testing.T, tree string) {
		put(t, tree+"/d1/a", "base")
		put(t, tree+"/other/z", "base")
		must(t, os.Link(tree+"/d1/a", tree+"/other/b"))
		must(t, os.Remove(tree+"/other/b"))
	}, func(t *testing.T, tree string) { put(t, tree+"/d1/a", "x\n") }, "d1/a")
}

// within returns a place whose tree is a directory of a dataset, and a directory beside it.
func within(t *testing.T) (p snapshot.Place, outside string) {
	t.Helper()
	_, dir := dataset(t)
	p = snapshottest.Within(t, dir)
	p.Dir = filepath.Dir(dir) + "/state"
	return p, dir + "/outside"
}

// The last link may be inside or outside the tree.
func TestAFileWithALinkOutsideTheTreeIsListed(t *testing.T) {
	p, outside := within(t)
	everyWay(t, p, func(t *testing.T, tree string) {
		put(t, tree+"/in/a", "base")
		put(t, outside+"/b", "base")
		must(t, os.Link(tree+"/in/a", outside+"/a"))
		must(t, os.Link(outside+"/b", tree+"/in/b"))
		put(t, tree+"/in/c", "base")
	}, func(t *testing.T, tree string) {
		for _, name := range []string{"a", "b"} {
			put(t, tree+"/in/"+name, "x")
		}
		must(t, os.Rename(tree+"/in/c", tree+"/c"))
	}, "in/a", "in/b", "in/c", "c")
}

func TestEachLinkOfAChangedFileIsListed(t *testing.T) {
	everyWay(t, place(t), func(t *testing.T, tree string) {
		for _, f := range []string{"written", "gone", "replaced", "by-dir", "moved", "linked", "d/kept", "d/sub/f", "moving/dir/f", "empty/f", "turned/f", "odd \n\\\xff/f"} {
			put(t, tree+"/"+f, "base")
		}
		must(t, os.Link(tree+"/linked", tree+"/d/linked"))
		must(t, os.Link(tree+"/linked", tree+"/d/sub/linked"))
		must(t, os.Symlink("old", tree+"/d/link"))
	}, func(t *testing.T, tree string) {
		put(t, tree+"/written", "x")
		must(t, os.Remove(tree+"/gone"))
		must(t, os.Remove(tree+"/replaced"))
		put(t, tree+"/replaced", "anew")
		must(t, os.Remove(tree+"/by-dir"))
		put(t, tree+"/by-dir/f", "anew")
		must(t, os.Rename(tree+"/moved", tree+"/d/moved"))
		put(t, tree+"/linked", "x")
		must(t, os.Link(tree+"/d/kept", tree+"/d/sub/kept"))
		must(t, os.Rename(tree+"/moving/dir", tree+"/dir"))
		put(t, tree+"/dir/f", "x")
		must(t, os.RemoveAll(tree+"/empty"))
		must(t, os.RemoveAll(tree+"/turned"))
		put(t, tree+"/turned", "a file")
		put(t, tree+"/odd \n\\\xff/f", "x")
		must(t, os.Chmod(tree+"/d/sub/f", 0o600))
		must(t, os.Remove(tree+"/d/link"))
		must(t, os.Symlink("new", tree+"/d/link"))
		must(t, unix.Mkfifo(tree+"/d/pipe", 0o600))
	}, "written", "gone", "replaced", "by-dir", "by-dir/f", "moved", "d/moved", "linked", "d/linked", "d/sub/linked", "d/kept", "d/sub/kept",
		"moving/dir/f", "dir/f", "empty/f", "turned", "turned/f", "odd \n\\\xff/f", "d/sub/f", "d/link", "d/pipe")
}

// An attribute is in an object of its own, in a hidden directory, or in the file's object. Many
// files in between put the two objects into different blocks.
func TestAChangedAttributeIsListed(t *testing.T) {
	for _, kept := range []string{"on", "sa"} {
		t.Run(kept, func(t *testing.T) {
			files := []string{"changed", "removed", "added", "dir"}
			everyWay(t, place(t, "-o", "xattr="+kept), func(t *testing.T, tree string) {
				put(t, tree+"/dir/f", "base")
				for _, f := range files[:3] {
					put(t, tree+"/"+f, "base")
				}
				for i := range 600 {
					put(t, tree+"/fill/"+strconv.Itoa(i), "")
				}
				for _, f := range []string{"changed", "removed", "dir"} {
					must(t, unix.Setxattr(tree+"/"+f, "user.a", []byte("base"), 0))
				}
			}, func(t *testing.T, tree string) {
				must(t, unix.Setxattr(tree+"/changed", "user.a", []byte("mine"), 0))
				must(t, unix.Setxattr(tree+"/dir", "user.a", []byte("mine"), 0))
				must(t, unix.Removexattr(tree+"/removed", "user.a"))
				must(t, unix.Setxattr(tree+"/added", "user.b", []byte("mine"), 0))
			}, files...)
		})
	}
}

// The kernel is not asked for the path.
func TestAPathLongerThanTheKernelsBufferIsListed(t *testing.T) {
	name := strings.Repeat("d", 250)
	deep := strings.Repeat(name+"/", 60) + "f"
	everyWay(t, place(t), func(t *testing.T, tree string) {
		dir, err := os.Open(tree)
		must(t, err)
		for range 60 {
			must(t, unix.Mkdirat(int(dir.Fd()), name, 0o755))
			next, err := vfs.OpenDir(int(dir.Fd()), name)
			must(t, errors.Join(err, dir.Close()))
			dir = next
		}
		fd, err := unix.Openat(int(dir.Fd()), "f", unix.O_CREAT|unix.O_WRONLY, 0o644)
		must(t, err)
		must(t, errors.Join(unix.Close(fd), dir.Close()))
	}, func(t *testing.T, tree string) {
		root, err := os.Open(tree)
		must(t, err)
		f, err := vfs.OpenBeneath(int(root.Fd()), deep, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteString("x")
		must(t, errors.Join(err, f.Close(), root.Close()))
	}, deep)
}

// No change, and a dataset mounted in the tree, yield nothing.
func TestFewChangesAreListedForASmallChange(t *testing.T) {
	p := place(t)
	tree := p.Tree.Path
	b := opened(t, p)
	for i := range 2000 {
		put(t, tree+"/d"+strconv.Itoa(i%10)+"/"+strconv.Itoa(i), "base")
	}
	sh(t, "create", of(t, p)+"/child")
	put(t, tree+"/child/f", "base")
	time.Sleep(wait)
	_, f := grown(t, b, p)
	for way, seq := range map[string]iter.Seq2[snapshot.Candidate, error]{
		"a fork": b.ListChanges(t.Context(), "s1", "f1"), "the real tree": b.DetectDrift(t.Context(), "s1"),
	} {
		if set := collected(t, seq); len(set) > 0 {
			t.Errorf("%s: %v is listed for no change", way, set)
		}
	}
	put(t, f.View.Path+"/d1/1", "x")
	put(t, tree+"/d1/1", "x")
	put(t, tree+"/child/f", "x")
	for way, seq := range map[string]iter.Seq2[snapshot.Candidate, error]{
		"a fork": b.ListChanges(t.Context(), "s1", "f1"), "the real tree": b.DetectDrift(t.Context(), "s1"),
	} {
		set := collected(t, seq)
		if !set.has("d1/1") || set.has("child/f") || len(set) > 3*32 {
			t.Errorf("%s: for one file %d paths are listed: %v", way, len(set), set)
		}
	}
	gone(t, b)
}

// The caller then walks both trees.
func TestAnUnknownModuleVersionIsNotAsked(t *testing.T) {
	p := place(t)
	b := opened(t, p)
	put(t, p.Tree.Path+"/f", "base")
	grown(t, b, p)
	_, err := b.Fork(t.Context(), "s1", "f2")
	must(t, err)
	_, err = b.Seal(t.Context(), "f1", "s2", snapshot.Idle)
	must(t, err)
	_, err = b.Seal(t.Context(), "f2", "s3", snapshot.Idle)
	must(t, err)
	for _, err := range b.ListChangesBetween(t.Context(), "s2", "s3") {
		if !errors.Is(err, errs.ErrNotSupported) {
			t.Errorf("two siblings: %v", err)
		}
	}
	zfs.WithoutKernel(t)
	n := 0
	for _, err := range b.ListChanges(t.Context(), "s1", "f1") {
		if n++; !errors.Is(err, errs.ErrNotSupported) {
			t.Errorf("with an unknown module version: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d answers", n)
	}
	must(t, b.RemoveFork(t.Context(), "f2"))
	must(t, b.Remove(t.Context(), "s2"))
	must(t, b.Remove(t.Context(), "s3"))
	gone(t, b)
}

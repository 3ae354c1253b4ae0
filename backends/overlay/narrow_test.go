//go:build linux

package overlay_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// dirsOf lists all directories of a view except its root.
func (s *fixture) dirsOf(v snapshot.View) (dirs []string) {
	s.Helper()
	root := reach(s, v)
	defer root.Close()
	top := vfs.FDPath(root) + "/."
	must(s, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != top {
			rel, err := filepath.Rel(top, path)
			dirs = append(dirs, rel)
			return err
		}
		return err
	}))
	return dirs
}

// part returns the manifest of a directory of a mounted view. Inode numbers and link counts are
// relative to the listed files.
func (s *fixture) part(v snapshot.View, dir string) string {
	s.Helper()
	root := reach(s, v)
	defer root.Close()
	return treetest.Manifest(s, vfs.FDPath(root)+"/./"+dir, treetest.Options{})
}

func (s *fixture) narrow(v snapshot.View, dir string, write bool) snapshot.View {
	s.Helper()
	n, err := s.ViewSubtree(s.Context(), v, dir, write)
	must(s, err)
	return n
}

// replaceDirs replaces each second directory of the first level by an empty directory or a file,
// and does the same inside the other directories.
func replaceDirs(t *testing.T, root string) {
	list, err := os.ReadDir(root)
	must(t, err)
	n := 0
	for _, d := range list {
		dir := filepath.Join(root, d.Name())
		if !d.IsDir() {
			continue
		}
		switch n++; n % 3 {
		case 0:
			must(t, os.RemoveAll(dir))
			must(t, os.WriteFile(dir, nil, 0o644))
		case 1:
			below, err := os.ReadDir(dir)
			must(t, err)
			must(t, os.RemoveAll(dir))
			must(t, os.Mkdir(dir, 0o700))
			for _, b := range below {
				must(t, os.Mkdir(filepath.Join(dir, b.Name()), 0o700))
			}
		}
	}
}

func TestANarrowedViewEqualsTheDirectoryOfTheWhole(t *testing.T) {
	if !treetest.AsUser(t) || !treetest.InNamespace(t) {
		return
	}
	for seed := range uint64(4) {
		s := newFixture(t, snapshottest.OnDisk(t))
		w := treetest.NewWriter(seed, treetest.Powers{NoDirRename: true, ShortRenames: true, KeepOldLinks: true})
		last := s.sealOften(w, 5)
		work := s.fork(last, "narrow")
		s.in("narrow", func(root *os.File) { w.Freeze(); must(t, w.Script(20).Play(root)) })
		s.in("narrow", func(root *os.File) { replaceDirs(t, vfs.FDPath(root)+"/.") })
		for name, v := range map[string]snapshot.View{"snapshot": s.snap(last), "fork": work} {
			before := s.manifest(v)
			dirs := s.dirsOf(v)
			if len(dirs) < 3 {
				t.Fatalf("the script made only %d directories", len(dirs))
			}
			for _, dir := range dirs {
				s.same(s.part(v, dir), s.manifest(s.narrow(v, dir, false)), name+", "+dir)
			}
			s.same(before, s.manifest(v), name+" after it was looked at")
		}
		if t.Failed() {
			return
		}
	}
}

func TestWritesInANarrowedViewShowInTheFork(t *testing.T) {
	if !treetest.AsUser(t) || !treetest.InNamespace(t) {
		return
	}
	s := newFixture(t, snapshottest.OnDisk(t))
	tree := s.place.Tree.Path
	must(t, os.MkdirAll(tree+"/a/b/c", 0o755))
	must(t, os.Chmod(tree+"/a/b", 0o2750))
	must(t, unix.Setxattr(tree+"/a/b", "user.mine", []byte("1"), 0))
	must(t, os.WriteFile(tree+"/a/b/c/file", []byte("base"), 0o644))
	must(t, os.WriteFile(tree+"/a/b/beside", []byte("base"), 0o644))
	past := unix.NsecToTimespec(1e18)
	for _, dir := range []string{"/a/b/c", "/a/b", "/a", ""} {
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, tree+dir, []unix.Timespec{past, past}, 0))
	}
	s.capture("base")
	v := s.fork("base", "work")
	before := s.manifest(v)
	part := s.narrow(v, "a/b/c", true)
	s.same(before, s.manifest(v), "the tree, with directories made ready")
	again := s.narrow(v, "a/b/c", true)
	if part.Overlay == nil || again.Overlay == nil || part.Overlay.Upper != again.Overlay.Upper {
		t.Fatalf("narrowed to %+v, and again to %+v", part, again)
	}
	root := reach(t, part)
	must(t, os.WriteFile(vfs.FDPath(root)+"/file", []byte("changed"), 0o644))
	must(t, os.WriteFile(vfs.FDPath(root)+"/new", []byte("new"), 0o644))
	must(t, root.Close())
	s.in("work", func(root *os.File) {
		for name, want := range map[string]string{"a/b/c/file": "changed", "a/b/c/new": "new", "a/b/beside": "base"} {
			got, err := os.ReadFile(vfs.FDPath(root) + "/./" + name)
			if must(t, err); string(got) != want {
				t.Errorf("%s is %q in the whole, want %q", name, got, want)
			}
		}
		must(t, os.RemoveAll(vfs.FDPath(root)+"/./a/b"))
	})
	if data, err := os.ReadFile(tree + "/a/b/c/file"); err != nil || string(data) != "base" {
		t.Errorf("the real file is %q, %v", data, err)
	}
	for _, dir := range []string{"a/b", "a/b/c", "a/none", "a/b/beside"} {
		if n, err := s.ViewSubtree(t.Context(), v, dir, true); !errors.Is(err, errs.ErrNotFound) {
			t.Errorf("narrowing to %s, which does not exist, returns %+v, %v", dir, n, err)
		}
	}
	for _, dir := range []string{".", "..", "/a", "a/../a", ""} {
		if _, err := s.ViewSubtree(t.Context(), v, dir, false); !errors.Is(err, errs.ErrNotSupported) {
			t.Errorf("narrowing to %q returns %v", dir, err)
		}
	}
}

func TestLayersOfRootAreNotNarrowed(t *testing.T) {
	treetest.NeedRoot(t)
	s := newFixture(t, snapshottest.OnDisk(t))
	must(t, os.Mkdir(s.place.Tree.Path+"/dir", 0o755))
	s.capture("base")
	if _, err := s.ViewSubtree(t.Context(), s.fork("base", "work"), "dir", true); !errors.Is(err, errs.ErrNotSupported) {
		t.Errorf("narrowing layers with redirects returns %v", err)
	}
}

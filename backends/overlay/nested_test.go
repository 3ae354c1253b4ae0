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
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// inside returns a place whose state directory is in the tree, like /var/lib/snapfs in /, or
// ~/.local/state/snapfs in /home.
func inside(t testing.TB) snapshot.Place {
	t.Helper()
	tree := filepath.Join(treetest.Dir(t), "tree")
	must(t, os.Mkdir(tree, 0o755))
	return snapshot.Place{Tree: snapshot.Tree{Path: tree}, Dir: tree + "/var/lib/snapfs/overlay"}
}

func TestNestedLayersAreMounted(t *testing.T) {
	treetest.NeedRoot(t)
	nests(t)
}

func TestNestedLayersOfAnOrdinaryUserAreMounted(t *testing.T) {
	if treetest.AsUser(t) && treetest.InNamespace(t) {
		nests(t)
	}
}

func nests(t *testing.T) {
	s := newFixture(t, inside(t))
	must(t, os.MkdirAll(s.place.Tree.Path+"/dir/sub", 0o755))
	must(t, os.WriteFile(s.place.Tree.Path+"/dir/sub/file", []byte("base"), 0o644))
	s.capture("base")
	if v := s.fork("base", "work"); v.Overlay.Nested {
		t.Error("an overlay of one layer and the tree is marked as nested")
	}
	put := func(name string) {
		t.Helper()
		s.in("work", func(root *os.File) {
			must(t, os.WriteFile(vfs.FDPath(root)+"/./dir/sub/"+name, []byte(name), 0o644))
			must(t, os.Remove(vfs.FDPath(root)+"/./dir/sub/file"))
			must(t, os.WriteFile(vfs.FDPath(root)+"/./dir/sub/file", []byte(name), 0o644))
		})
	}
	for _, name := range []string{"one", "two", "three"} {
		put(name)
		s.seal("work", snapshot.ID(name), snapshot.Idle)
	}
	v := s.fork("two", "back")
	if !v.Overlay.Nested {
		t.Error("the layers are in the tree, and the view is not marked as nested")
	}
	s.in("back", func(root *os.File) {
		text, err := os.ReadFile(vfs.FDPath(root) + "/./dir/sub/file")
		if must(t, err); string(text) != "two" {
			t.Errorf("the file of the second state holds %q", text)
		}
		_, err = vfs.Lstat(int(root.Fd()), "dir/sub/three")
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the second state has a later file: %v", err)
		}
	})
	if n := s.snap("two"); !n.Overlay.Nested || len(n.Overlay.Lower) != 3 {
		t.Errorf("the snapshot's view is %+v", n.Overlay)
	}
}

func TestTheRootOfThisMachineCanBeForked(t *testing.T) {
	treetest.NeedRoot(t)
	s := newFixture(t, snapshot.Place{Tree: snapshot.Tree{Path: "/"}, Dir: treetest.Dir(t) + "/state"})
	s.capture("base")
	s.fork("base", "work")
	const mark = "/./etc/snapfs-test-marks-its-fork"
	for _, id := range []snapshot.ID{"s1", "s2"} {
		s.in("work", func(root *os.File) {
			must(t, os.WriteFile(vfs.FDPath(root)+mark, []byte(id), 0o644))
			must(t, os.Chmod(vfs.FDPath(root)+"/./etc/passwd", 0o600))
		})
		s.seal("work", id, snapshot.Idle)
	}
	s.fork("s1", "back")
	s.in("back", func(root *os.File) {
		text, err := os.ReadFile(vfs.FDPath(root) + mark)
		if must(t, err); string(text) != "s1" {
			t.Errorf("the file of the first state holds %q", text)
		}
	})
	if _, err := os.Lstat(mark); err == nil {
		t.Error("the real tree has the file of a fork")
	}
	if info, err := os.Stat("/etc/passwd"); err != nil || info.Mode().Perm() == 0o600 {
		t.Errorf("the real file is %v, %v", info.Mode(), err)
	}
}

func TestLayersBesideTheTreeAreNotNested(t *testing.T) {
	treetest.NeedRoot(t)
	s := newFixture(t, snapshottest.OnDisk(t))
	s.capture("base")
	s.fork("base", "work")
	s.seal("work", "s1", snapshot.Idle)
	if s.snap("s1").Overlay.Nested {
		t.Error("layers outside the tree are marked as nested")
	}
	far := newFixture(t, inside(t))
	other := treetest.Small(t, "tmpfs", 1<<20)
	must(t, os.MkdirAll(far.place.Dir, 0o755))
	must(t, unix.Mount(other, far.place.Dir, "", unix.MS_BIND, ""))
	defer unix.Unmount(far.place.Dir, 0)
	far.capture("base")
	far.fork("base", "work")
	far.seal("work", "s1", snapshot.Idle)
	far.in("work", func(*os.File) {})
}

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

// The state directory lies in the tree: /var/lib/snapfs in /, or
// ~/.local/state/snapfs in /home.
func inside(t testing.TB) snapshot.Place {
	t.Helper()
	tree := filepath.Join(treetest.Dir(t), "tree")
	must(t, os.Mkdir(tree, 0o755))
	return snapshot.Place{Tree: snapshot.Tree{Path: tree}, Dir: tree + "/var/lib/snapfs/overlay"}
}

func TestLayersInTheTreeItself(t *testing.T) {
	treetest.NeedRoot(t)
	nests(t)
}

func TestLayersInTheTreeOfAnOrdinaryUser(t *testing.T) {
	if treetest.AsUser(t) && treetest.InNamespace(t) {
		nests(t)
	}
}

func nests(t *testing.T) {
	s := newStage(t, inside(t))
	must(t, os.MkdirAll(s.place.Tree.Path+"/dir/sub", 0o755))
	must(t, os.WriteFile(s.place.Tree.Path+"/dir/sub/file", []byte("base"), 0o644))
	s.capture("base")
	if v := s.fork("base", "work"); v.Overlay.Nested {
		t.Error("one layer over the tree needs no nesting")
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
		t.Error("the layers lie in the tree, and the view does not say so")
	}
	s.in("back", func(root *os.File) {
		text, err := os.ReadFile(vfs.FDPath(root) + "/./dir/sub/file")
		if must(t, err); string(text) != "two" {
			t.Errorf("the second state has %q", text)
		}
		_, err = vfs.Lstat(int(root.Fd()), "dir/sub/three")
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the second state has what came later: %v", err)
		}
	})
	if n := s.snap("two"); !n.Overlay.Nested || len(n.Overlay.Lower) != 3 {
		t.Errorf("the snapshot's view is %+v", n.Overlay)
	}
}

func TestTheRootOfThisMachineIsATree(t *testing.T) {
	treetest.NeedRoot(t)
	s := newStage(t, snapshot.Place{Tree: snapshot.Tree{Path: "/"}, Dir: treetest.Dir(t) + "/state"})
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
			t.Errorf("the first state has %q", text)
		}
	})
	if _, err := os.Lstat(mark); err == nil {
		t.Error("it is in the real tree")
	}
	if info, err := os.Stat("/etc/passwd"); err != nil || info.Mode().Perm() == 0o600 {
		t.Errorf("the real file is %v, %v", info.Mode(), err)
	}
}

func TestLayersBesideTheTreeAreNotNested(t *testing.T) {
	treetest.NeedRoot(t)
	s := newStage(t, snapshottest.OnDisk(t))
	s.capture("base")
	s.fork("base", "work")
	s.seal("work", "s1", snapshot.Idle)
	if s.snap("s1").Overlay.Nested {
		t.Error("nested without need")
	}
	far := newStage(t, inside(t))
	other := treetest.Small(t, "tmpfs", 1<<20)
	must(t, os.MkdirAll(far.place.Dir, 0o755))
	must(t, unix.Mount(other, far.place.Dir, "", unix.MS_BIND, ""))
	defer unix.Unmount(far.place.Dir, 0)
	far.capture("base")
	far.fork("base", "work")
	far.seal("work", "s1", snapshot.Idle)
	far.in("work", func(*os.File) {})
}

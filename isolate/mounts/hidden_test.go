//go:build linux

package mounts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A directory may be removed between the search for secrets and the making of the layer, and be made again later.
func TestARemovedDirectoryIsHiddenItself(t *testing.T) {
	tree := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(tree, "a/there"), 0o755), os.WriteFile(filepath.Join(tree, "a/file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	parents, here := parentsOf(tree, []Hidden{
		{Dir: "a/there", Absent: []string{"x"}}, {Dir: "a/gone/deeper", Absent: []string{"y"}}, {Dir: "none", Absent: []string{"z"}}, {Dir: "a/file", Absent: []string{"w"}},
	})
	want := []Hidden{{Dir: "a/there", Absent: []string{"x"}}, {Dir: "a", Absent: []string{"gone"}}, {Dir: ".", Absent: []string{"none"}}}
	if !reflect.DeepEqual(here, want) {
		t.Errorf("hidden are %v, not %v", here, want)
	}
	if len(parents) != 2 || parents[0].path != "a" || parents[1].path != "a/there" {
		t.Errorf("the parents are %v", parents)
	}
}

// A second container with the same hidden entries has a mount of the first one's layer, with ids of its own. One with
// other entries, or after a change of a directory that the layer copies, gets a new layer, and the first one stays as
// it was.
func TestContainersShareALayerOfTheSameContent(t *testing.T) {
	treetest.NeedRoot(t)
	tree := t.TempDir()
	if err := os.Mkdir(filepath.Join(tree, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		keptLayers.mu.Lock()
		defer keptLayers.mu.Unlock()
		if kept := keptLayers.layers[tree]; kept != nil {
			kept.layer.Close()
			delete(keptLayers.layers, tree)
		}
	})
	fill := func(base uint32, opaque bool, absent ...string) (*hiddenLayer, vfs.Stat) {
		t.Helper()
		l := &hiddenLayer{opaque: opaque}
		err := l.fill(tree, []Hidden{{Dir: "a", Absent: absent}})
		if err == nil {
			t.Cleanup(func() { l.layer.Close() })
			err = l.mapIDs(tree, userNamespace(t, base), IDs{Base: base, Size: 1 << 16})
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range absent {
			if st, err := vfs.Lstat(int(l.layer.Fd()), "a/"+name); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
				t.Errorf("the whiteout of %s is %+v, %v", name, st, err)
			}
		}
		st, err := vfs.Lstat(int(l.layer.Fd()), "a")
		if err != nil || st.UID != base {
			t.Errorf("the copy of a belongs to %d and not %d: %v", st.UID, base, err)
		}
		return l, st
	}
	first, was := fill(1<<20, false, "x", "y")
	keptLayers.mu.Lock()
	kept := keptLayers.layers[tree]
	keptLayers.mu.Unlock()
	if kept == nil {
		t.Log("this kernel cannot share a layer")
		return
	}
	if second, st := fill(1<<21, false, "x", "y"); !first.fresh || second.fresh || st.Dev != was.Dev {
		t.Errorf("fresh: %v and %v, on the filesystems %x and %x", first.fresh, second.fresh, was.Dev, st.Dev)
	}
	if other, st := fill(1<<20, false, "x"); !other.fresh || st.Dev == was.Dev {
		t.Error("a container with other hidden entries has the same layer")
	}
	if other, _ := fill(1<<20, true, "x"); !other.fresh {
		t.Error("an overlay of another kind has the same layer")
	}
	if err := os.Chmod(filepath.Join(tree, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if other, st := fill(1<<20, true, "x"); !other.fresh || st.Mode&0o7777 != 0o700 {
		t.Errorf("after a change: fresh %v, mode %o", other.fresh, st.Mode)
	}
	if st, err := vfs.Lstat(int(first.layer.Fd()), "a"); err != nil || st.Mode&0o7777 != 0o755 {
		t.Errorf("the first one has the mode %o now, %v", st.Mode, err)
	}
}

// userNamespace returns a user namespace whose ids begin at base on the host. It ends with the test.
func userNamespace(t *testing.T, base uint32) *os.File {
	t.Helper()
	ids := []syscall.SysProcIDMap{{HostID: int(base), Size: 1 << 16}}
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err = errors.Join(err, in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

//go:build linux

package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A container gets the layers of the last one only if they hide the same entries, of directories with the same
// attributes, for the same ids.
func TestOnlyTheSameEntriesAreHiddenAgain(t *testing.T) {
	treetest.NeedRoot(t)
	tree := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(tree, "a/b"), 0o755), os.Mkdir(filepath.Join(tree, "c"), 0o755)); err != nil {
		t.Fatal(err)
	}
	images := filepath.Join(t.TempDir(), "images")
	k := &hiddenLayers{}
	// hide makes the layers for a container, as a Planner does. It returns the filesystem of the first one, and whether
	// an earlier container had the same layers.
	hide := func(ids IDs, opaque bool, hidden ...Hidden) (filesystem uint64, again bool) {
		t.Helper()
		l := &hiddenLayer{source: hiddenSource{opaque: opaque, images: images, ids: ids}}
		l.source.parents, l.source.hidden = parentsOf(tree, hidden)
		if !k.reuse(tree, l) {
			l.err = l.fill()
		}
		if l.err != nil {
			t.Fatal(l.err)
		}
		l.mapped = true
		k.keep(tree, l)
		st, err := vfs.Lstat(int(l.layer.Fd()), ".")
		if err != nil {
			t.Fatal(err)
		}
		CloseFiles(l.files())
		return st.Dev, l.again
	}
	own, some := Own(1<<28), Hidden{Dir: "a/b", Absent: []string{"x", "y"}}
	first, again := hide(own, true, some)
	if again {
		t.Error("the first container has layers of an earlier one")
	}
	if second, again := hide(own, true, some); !again || second != first {
		t.Error("the second container has no layers of the first")
	}
	for what, change := range map[string]func() bool{
		"a further name": func() bool {
			_, again := hide(own, true, Hidden{Dir: "a/b", Absent: []string{"x", "y", "z"}})
			return again
		},
		"a name less":         func() bool { _, again := hide(own, true, Hidden{Dir: "a/b", Absent: []string{"x"}}); return again },
		"a further directory": func() bool { _, again := hide(own, true, some, Hidden{Dir: "c", Absent: []string{"x"}}); return again },
		"a stand-in": func() bool {
			_, again := hide(own, true, Hidden{Dir: "a/b", Absent: some.Absent, StandIns: []StandIn{{Name: "z", Kind: EmptyDir}}})
			return again
		},
		"all entries": func() bool {
			_, again := hide(own, true, Hidden{Dir: "a/b", Absent: some.Absent, All: true})
			return again
		},
		"other ids":     func() bool { _, again := hide(Own(1<<29), true, some); return again },
		"another layer": func() bool { _, again := hide(own, false, some); return again },
		"another mode": func() bool {
			if err := os.Chmod(filepath.Join(tree, "a"), 0o700); err != nil {
				t.Fatal(err)
			}
			_, again := hide(own, true, some)
			return again
		},
		"an attribute": func() bool {
			if err := vfs.SetXattr(unix.AT_FDCWD, filepath.Join(tree, "a/b"), "user.x", []byte("1"), 0); err != nil {
				t.Fatal(err)
			}
			_, again := hide(own, true, some)
			return again
		},
		"a new entry": func() bool {
			if err := os.WriteFile(filepath.Join(tree, "a/b/new"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			_, again := hide(own, true, some)
			return again
		},
	} {
		if hide(own, true, some); change() {
			t.Error("the layers are those of an earlier container, in spite of", what)
		}
	}
	for _, l := range k.last {
		CloseFiles(l.files())
	}
}

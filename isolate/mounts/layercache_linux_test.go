package mounts

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// layerOf returns the device of the layer that hides entries of tree, after it has checked what the layer holds.
func layerOf(t *testing.T, c *LayerCache, tree string, hidden []Hidden) uint64 {
	t.Helper()
	m, _, shared, err := c.get(tree, hidden, true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if c != nil && !shared {
		treetest.Skip(t, "Linux 6.15", "this kernel makes no detached mount of a detached one")
	}
	for _, h := range hidden {
		for _, name := range h.Absent {
			st, err := vfs.Lstat(int(m.Fd()), filepath.Join(h.Dir, name))
			if err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
				t.Errorf("%s/%s is not hidden: %v", h.Dir, name, err)
			}
		}
	}
	real, err := vfs.Lstat(unix.AT_FDCWD, filepath.Join(tree, "home"))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := vfs.Lstat(int(m.Fd()), "home"); err != nil || st.Mode != real.Mode || st.MTime != real.MTime {
		t.Errorf("the copy of home has mode %o and time %v, want %o and %v: %v", st.Mode, st.MTime, real.Mode, real.MTime, err)
	}
	st, err := vfs.Lstat(int(m.Fd()), "")
	if err != nil {
		t.Fatal(err)
	}
	return st.Dev
}

func TestALayerIsSharedWhereItHidesTheSame(t *testing.T) {
	treetest.NeedRoot(t)
	tree := t.TempDir()
	home := filepath.Join(tree, "home")
	if err := os.Mkdir(home, 0o750); err != nil {
		t.Fatal(err)
	}
	var c LayerCache
	hidden := []Hidden{{Dir: "home", Absent: []string{".ssh"}}}
	first := layerOf(t, &c, tree, hidden)
	if again := layerOf(t, &c, tree, hidden); again != first {
		t.Error("a second layer, although it hides the same")
	}
	if own := layerOf(t, nil, tree, hidden); own == first {
		t.Error("a layer is shared without a cache")
	}
	if more := layerOf(t, &c, tree, []Hidden{{Dir: "home", Absent: []string{".ssh", ".aws"}}}); more == first {
		t.Error("a layer is shared that hides less")
	}
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if changed := layerOf(t, &c, tree, hidden); changed == first {
		t.Error("a layer is shared whose directory has another mode")
	}
	for range 2 * maxLayers {
		if err := os.Mkdir(filepath.Join(tree, "home", "new"), 0o700); err != nil { // another time
			t.Fatal(err)
		}
		layerOf(t, &c, tree, hidden)
		if err := os.Remove(filepath.Join(tree, "home", "new")); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.layers) > maxLayers {
		t.Errorf("%d layers", len(c.layers))
	}
}

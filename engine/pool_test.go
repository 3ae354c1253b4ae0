package engine_test

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// intoPool makes a pool, and imports the workspace or moves it there.
func intoPool(t *testing.T, b *bench, adopt bool) {
	treetest.NeedProgram(t, "mkfs.btrfs")
	dir := b.DataDir("pool")
	t.Cleanup(func() {
		if adopt {
			_ = unix.Unmount(b.workspace, unix.UMOUNT_NOFOLLOW)
		}
		if err := unix.Unmount(filepath.Join(dir, "p/mnt"), 0); err != nil {
			t.Error("unmount:", err)
		}
	})
	p, err := pool.Create(t.Context(), dir, "p", 512<<20)
	if err == nil && adopt {
		_, err = p.Adopt(t.Context(), b.workspace, nil)
	} else if err == nil {
		_, err = p.Import(t.Context(), b.workspace, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A pool lies in the state directory, and what it holds is found by the tree.
func TestBasesInAPoolAreCollectedWhenNoSandboxIsLeft(t *testing.T) {
	treetest.NeedRoot(t)
	dir := treetest.Dir(t)
	b := benchIn(t, dir, dir)
	intoPool(t, b, false)
	for i := range 3 {
		b.write("f", strconv.Itoa(i))
		b.new("s")
		if err := b.Remove(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
	}
	b.sound("after three sandboxes")
}

//go:build linux

package mounts

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A layer's directories have the mode, owner and times of the originals with every umask, also if mkdir(2) cannot set
// the mode.
func TestALayerCopiesDirectoriesWithEveryUmask(t *testing.T) {
	treetest.NeedRoot(t)
	tree := t.TempDir()
	hidden := []Hidden{}
	for _, mode := range []uint32{0o755, 0o1777, 0o2775, 0o700, 0o555, 0o050, 0o4711} {
		dir := fmt.Sprintf("d%o/below", mode)
		path := filepath.Join(tree, dir)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		for at, id := range map[string]int{path: 0, filepath.Dir(path): 1000} {
			if err := os.Chown(at, id, id); err != nil {
				t.Fatal(err)
			}
			if err := unix.Chmod(at, mode); err != nil {
				t.Fatal(err)
			}
		}
		hidden = append(hidden, Hidden{Dir: dir, Absent: []string{"secret"}, StandIns: []StandIn{{Name: "dir"}, {Name: "file", Kind: EmptyFile}, {Name: "link", Kind: Link, Link: "to"}}})
	}
	for _, mask := range []int{0, 0o022, 0o077} {
		parents, here := parentsOf(tree, hidden)
		layer := t.TempDir()
		root, err := os.Open(layer)
		if err != nil {
			t.Fatal(err)
		}
		before := syscall.Umask(mask)
		w := layerWriter{root: int(root.Fd())}
		err = w.fill(parents, here, true)
		syscall.Umask(before)
		root.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parents {
			st, err := vfs.Lstat(unix.AT_FDCWD, filepath.Join(layer, p.path))
			if err != nil || st.Mode != p.st.Mode || st.UID != p.st.UID || st.GID != p.st.GID || st.MTime != p.st.MTime {
				t.Errorf("umask %03o: %s has mode %o, owner %d and time %v, not %o, %d and %v: %v", mask, p.path, st.Mode, st.UID, st.MTime, p.st.Mode, p.st.UID, p.st.MTime, err)
			}
		}
		for name, kind := range map[string]uint32{"secret": unix.S_IFCHR, "dir": unix.S_IFDIR, "file": unix.S_IFREG, "link": unix.S_IFLNK} {
			st, err := vfs.Lstat(unix.AT_FDCWD, filepath.Join(layer, "d755/below", name))
			if err != nil || st.Mode&unix.S_IFMT != kind {
				t.Errorf("%s has type %o, not %o: %v", name, st.Mode&unix.S_IFMT, kind, err)
			}
		}
	}
}

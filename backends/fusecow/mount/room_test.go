//go:build linux

package mount

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// TestFullServerTakesNoNames, while everything else works, and takes them again after it has room.
func TestFullServerTakesNoNames(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	dir := treetest.Dir(t)
	treetest.Leaks(t)
	lower := dir + "/lower"
	err := errors.Join(os.Mkdir(lower, 0o755), os.WriteFile(lower+"/file", []byte("old"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	f, err := layer.Open(layer.Options{Lower: lower, Layers: []string{dir + "/layer"}})
	if err != nil {
		t.Fatal(err)
	}
	s, root, err := New(f, layer.Whole, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := root.Close()
		s.Wait()
		s.Close()
		if err = errors.Join(err, f.Close()); err != nil {
			t.Error(err)
		}
	})
	at := vfs.FDPath(root)
	make := func(n int) error { return os.Symlink("target", fmt.Sprintf("%s/link%d", at, n)) }
	if err := make(0); err != nil {
		t.Fatal(err)
	}
	runtime.GC() // until the first collection nothing counts as live
	added.Store(0)
	fullAt.Store(1)
	t.Cleanup(func() { fullAt.Store(0); full.Store(false) })
	for what, err := range map[string]error{
		"symlink": make(1), "mkdir": os.Mkdir(at+"/dir", 0o755), "create": os.WriteFile(at+"/new", nil, 0o644),
		"link": os.Link(at+"/file", at+"/hard"), "setxattr": unix.Setxattr(at+"/file", "user.x", []byte("y"), 0),
	} {
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v", what, err)
		}
	}
	text, err := os.ReadFile(at + "/file")
	err = errors.Join(err, os.WriteFile(at+"/file", []byte("new"), 0o644), os.Rename(at+"/file", at+"/moved"), os.Remove(at+"/link0"))
	if err != nil || string(text) != "old" {
		t.Errorf("what adds no name: %q, %v", text, err)
	}
	fullAt.Store(1 << 40)
	for n := range 101 { // until it measures again
		if err = make(n); err == nil {
			break
		}
	}
	if text, err2 := os.ReadFile(at + "/moved"); err != nil || err2 != nil || string(text) != "new" {
		t.Errorf("afterwards: %v, %v, %q", err, err2, text)
	}
}

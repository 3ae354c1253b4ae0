//go:build linux

package hybrid_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestWhatIsKnownCostsNoRequest of the small files without attributes that a tree mostly consists of: they are listed, opened and
// read when nobody serves them any more. What the two filesystems show beneath the overlay is one tree.
func TestWhatIsKnownCostsNoRequest(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	place := snapshottest.OnDisk(t)
	tree := place.Tree.Path
	must(t, os.MkdirAll(tree+"/dir/marked", 0o755))
	large := strings.Repeat("large", 1<<19)
	for name, content := range map[string]string{
		"/small": "small", "/dir/small": "in a directory", "/dir/large": large, "/attr": "with an attribute",
		"/dir/marked/small": "in a directory with an attribute", "/one": "of two names",
	} {
		must(t, os.WriteFile(tree+name, []byte(content), 0o644))
	}
	must(t, os.Link(tree+"/one", tree+"/dir/marked/two"))
	for _, name := range []string{"/attr", "/dir/marked"} {
		must(t, unix.Setxattr(tree+name, "user.test", []byte(name), 0))
	}
	b, err := driver().Open(t.Context(), place)
	must(t, err)
	_, err = b.Capture(t.Context(), place.Tree, "base")
	must(t, err)
	f, err := b.Fork(t.Context(), "base", "fork")
	must(t, err)
	root := reach(t, f.View)
	defer root.Close()
	top := kernel.FDPath(root)

	known := []string{"small", "dir/small"}
	apart := []string{"attr", "dir/large", "dir/marked/small", "dir/marked/two", "one"}
	for _, name := range slices.Concat(known, apart) {
		same(t, top, tree, name)
	}
	if got := names(t, top+"/dir/marked"); got != "small two" {
		t.Errorf("a directory with an attribute lists %q", got)
	}
	var one, two unix.Stat_t
	must(t, errors.Join(unix.Lstat(top+"/one", &one), unix.Lstat(top+"/dir/marked/two", &two)))
	if one.Ino != two.Ino || one.Dev != two.Dev || one.Nlink != 2 {
		t.Errorf("two names of one file are %d:%d and %d:%d, of %d names", one.Dev, one.Ino, two.Dev, two.Ino, one.Nlink)
	}
	value := make([]byte, 64)
	for _, name := range []string{"/attr", "/dir/marked"} {
		if n, err := unix.Getxattr(top+name, "user.test", value); err != nil || string(value[:n]) != name {
			t.Errorf("the attribute of %s is %q, %v", name, value[:max(n, 0)], err)
		}
	}
	if _, err := unix.Getxattr(top+"/small", "user.test", value); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("an attribute of a file that has none is %v", err)
	}
	absent(t, top)
	must(t, os.WriteFile(top+"/dir/absent", nil, 0o644))
	must(t, os.Remove(top+"/dir/absent"))
	if _, err := os.Lstat(f.View.Overlay.Upper + "/dir/absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was made and removed above no file leaves %v", err)
	}

	for range 2 { // the kernel keeps a list from the second time on
		names(t, top+"/dir")
	}
	server := treetest.Started(t)
	if len(server) != 1 {
		t.Fatalf("the processes %v were started, want one that serves the tree", server)
	}
	must(t, unix.Kill(server[0], unix.SIGKILL))
	for _, name := range known {
		same(t, top, tree, name)
	}
	if got := names(t, top+"/dir"); got != "large marked small" {
		t.Errorf("a known directory lists %q", got)
	}
	absent(t, top)
	if _, err := os.ReadFile(top + "/dir/large"); err == nil {
		t.Error("a large file is opened where nobody serves it: who says that the others were not asked for?")
	}
	must(t, root.Close())
	must(t, b.RemoveFork(t.Context(), f.ID))
}

// same reads a file here and there.
func same(t *testing.T, top, tree, name string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(top, name))
	must(t, err)
	want, err := os.ReadFile(filepath.Join(tree, name))
	must(t, err)
	if string(got) != string(want) {
		t.Errorf("%s has %d bytes that differ from the %d of the tree", name, len(got), len(want))
	}
}

func absent(t *testing.T, top string) {
	t.Helper()
	for _, name := range []string{"/absent", "/dir/absent", "/dir/marked/absent"} {
		if _, err := os.Lstat(top + name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s, which is not there, gives %v", name, err)
		}
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	all := make([]string, len(entries))
	for i, e := range entries {
		all[i] = e.Name()
	}
	return strings.Join(all, " ")
}

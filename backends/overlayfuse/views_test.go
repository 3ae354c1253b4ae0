//go:build linux

package overlayfuse_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/mount"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// The files that fill creates in either view.
var (
	cachedFiles   = []string{"small", "dir/small"}
	uncachedFiles = []string{"attr", "dir/large", "dir/marked/small", "dir/marked/two", "one"}
)

// fill creates a tree with files of each kind.
func fill(t *testing.T, tree string) {
	t.Helper()
	must(t, os.MkdirAll(tree+"/dir/marked", 0o755))
	for _, name := range slices.Concat(cachedFiles, uncachedFiles) {
		content := "in " + name
		if name == "dir/large" {
			content = strings.Repeat("large", 1<<19)
		}
		if name != "dir/marked/two" {
			must(t, os.WriteFile(filepath.Join(tree, name), []byte(content), 0o644))
		}
	}
	must(t, os.Link(tree+"/one", tree+"/dir/marked/two"))
	for _, name := range []string{"/attr", "/dir/marked"} {
		must(t, unix.Setxattr(tree+name, "user.test", []byte(name), 0))
	}
}

// above returns a mounted fork of the tree at place.
func above(t *testing.T, place snapshot.Place) (top string, v snapshot.View) {
	t.Helper()
	b, err := driver().Open(t.Context(), place)
	must(t, err)
	_, err = b.Capture(t.Context(), place.Tree, "base")
	must(t, err)
	f, err := b.Fork(t.Context(), "base", "fork")
	must(t, err)
	root := reach(t, f.View)
	t.Cleanup(func() { must(t, root.Close()) })
	return vfs.FDPath(root), f.View
}

// TestTwoViewsAreOneTree as seen through the overlay.
func TestTwoViewsAreOneTree(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	for what, attr := range map[string]bool{"the root has no attribute": false, "the root has one": true} {
		t.Run(what, func(t *testing.T) {
			place := snapshottest.OnDisk(t)
			tree := place.Tree.Path
			fill(t, tree)
			if attr {
				must(t, unix.Setxattr(tree, "user.test", nil, 0))
			}
			top, _ := above(t, place)
			for _, name := range slices.Concat(cachedFiles, uncachedFiles) {
				same(t, top, tree, name)
			}
			for dir, want := range map[string]string{"": "attr dir one small", "/dir": "large marked small", "/dir/marked": "small two"} {
				if got := names(t, top+dir); got != want {
					t.Errorf("%s has %q, want %q", dir, got, want)
				}
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
			if n, err := unix.Llistxattr(top+"/small", value); err != nil || n != 0 {
				t.Errorf("the attributes of a file that has none take %d bytes, %v", n, err)
			}
		})
	}
}

// TestMissingNameLeavesNoInode after it was created and removed.
func TestMissingNameLeavesNoInode(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	place := snapshottest.OnDisk(t)
	fill(t, place.Tree.Path)
	top, v := above(t, place)
	for _, name := range []string{"/absent", "/dir/absent", "/dir/marked/absent"} {
		if _, err := os.Lstat(top + name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s, which is not there, gives %v", name, err)
		}
		must(t, os.WriteFile(top+name, nil, 0o644))
		must(t, os.Remove(top+name))
		if _, err := os.Lstat(v.Overlay.Upper + name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s, made and removed, leaves %v", name, err)
		}
	}
}

// TestKnownFilesCostNoRequests of the cached view: it can be listed, opened and read after the server is gone.
func TestKnownFilesCostNoRequests(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	place := snapshottest.OnDisk(t)
	tree := place.Tree.Path
	fill(t, tree)
	before := treetest.Started(t) // of earlier tests
	top, _ := above(t, place)
	for range 2 { // the kernel caches a listing from the second read on
		for _, name := range slices.Concat(cachedFiles, []string{"dir/large"}) {
			same(t, top, tree, name)
			names(t, filepath.Dir(filepath.Join(top, name)))
		}
	}
	server := slices.DeleteFunc(treetest.Started(t), func(pid int) bool { return slices.Contains(before, pid) })
	if len(server) != 1 {
		t.Fatalf("the processes %v were started, want one that serves the tree", server)
	}
	must(t, unix.Kill(server[0], unix.SIGKILL))
	for _, name := range cachedFiles {
		same(t, top, tree, name)
	}
	if got := names(t, top+"/dir"); got != "large marked small" {
		t.Errorf("a known directory lists %q", got)
	}
	if _, err := unix.Getxattr(top+"/small", "user.test", nil); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("an attribute of a file that has none is %v", err)
	}
	if _, err := os.ReadFile(top + "/dir/large"); err == nil {
		t.Error("a large file is opened where nobody serves it: who says that the others were not asked for?")
	}
}

// TestViewsHaveDisjointFiles, and the cached view shows whiteouts for missing names.
func TestViewsHaveDisjointFiles(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	tree := snapshottest.OnDisk(t).Tree.Path
	fill(t, tree)
	f, err := layer.Open(layer.Options{Lower: tree, ReadOnly: true})
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	common, uncached := mounted(t, f, layer.Cached), mounted(t, f, layer.Uncached)
	for _, name := range cachedFiles {
		same(t, common, tree, name)
	}
	var st unix.Stat_t
	if err := unix.Lstat(common+"/absent", &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("a name that is not there is of mode %o and device %d, %v: no whiteout", st.Mode, st.Rdev, err)
	}
	known := f.InodeCount()
	if err := unix.Lstat(common+"/attr", &st); err != unix.ENOENT || f.InodeCount() != known {
		t.Errorf("what one side does not tell of (%v) is held: %d nodes for %d", err, f.InodeCount(), known)
	}
	for _, name := range append([]string{"dir/marked"}, uncachedFiles...) {
		if err := unix.Lstat(filepath.Join(common, name), &st); err != unix.ENOENT && !strings.HasPrefix(name, "dir/marked/") {
			t.Errorf("%s is on the common side: %v", name, err)
		}
		if !strings.HasSuffix(name, "marked") {
			same(t, uncached, tree, name)
		}
	}
	if got := names(t, uncached+"/dir") + names(t, uncached); got != "" {
		t.Errorf("what the common side lists is listed as %q by the other too", got)
	}
	if got := names(t, uncached+"/dir/marked"); got != "small two" {
		t.Errorf("a directory of one side alone lists %q", got)
	}

	// It stays in the view in which an overlay has found it.
	must(t, os.Mkdir(tree+"/late", 0o755))
	must(t, os.WriteFile(tree+"/late/file", nil, 0o644))
	must(t, unix.Lstat(uncached+"/late", &st))
	if err := unix.Lstat(common+"/late", &st); err != unix.ENOENT || names(t, uncached+"/late") != "file" {
		t.Errorf("what one side was told of is on the other too (%v), or is not listed", err)
	}
}

// mounted mounts a view, served by this process.
func mounted(t *testing.T, f *layer.FS, view layer.View) (top string) {
	t.Helper()
	server, root, err := mount.New(f, view, unix.MOUNT_ATTR_RDONLY)
	must(t, err)
	t.Cleanup(func() {
		must(t, root.Close())
		server.Wait()
		server.Close()
	})
	return vfs.FDPath(root)
}

// same compares a file in two places.
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

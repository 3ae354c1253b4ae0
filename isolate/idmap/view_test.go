//go:build linux

package idmap_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate/idmap"
)

// view mounts a view of a directory.
func view(t *testing.T, dir string, base uint32) (*idmap.View, string) {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	at := t.TempDir()
	tree := open(t, dir)
	v, err := idmap.MountView(at, tree, base, false, nil)
	must(t, err)
	tree.Close()
	t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
	return v, at
}

func open(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func wantText(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s: %q, %v; want %q", path, got, err, want)
	}
}

// TestAViewShowsEachChangeAtOnce: content, size, names that come and go, whoever makes the change.
func TestAViewShowsEachChangeAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/f", "one")
	_, at := view(t, dir, 0)
	wantText(t, at+"/f", "one")
	if _, err := os.Stat(at + "/g"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("before it exists: %v", err)
	}
	write(t, dir+"/f", "longer than before")
	write(t, dir+"/g", "new")
	wantText(t, at+"/f", "longer than before")
	wantText(t, at+"/g", "new")
	write(t, at+"/f", "back")
	wantText(t, dir+"/f", "back")
	write(t, dir+"/h", "replaced")
	must(t, os.Rename(dir+"/h", dir+"/f"))
	wantText(t, at+"/f", "replaced")
	must(t, os.Remove(dir+"/f"))
	if _, err := os.Stat(at + "/f"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("after it is gone: %v", err)
	}
}

// TestAViewLowersIds: both ways.
func TestAViewLowersIds(t *testing.T) {
	treetest.NeedRoot(t) // who may give files to anybody
	const base = 1 << 28
	dir := t.TempDir()
	must(t, os.Chown(dir, base, base))
	write(t, dir+"/f", "x")
	must(t, os.Chown(dir+"/f", base+7, base+8))
	_, at := view(t, dir, base)
	for path, want := range map[string][2]uint32{at: {0, 0}, at + "/f": {7, 8}} {
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		if st.Uid != want[0] || st.Gid != want[1] {
			t.Errorf("%s belongs to %d and %d", path, st.Uid, st.Gid)
		}
	}
	write(t, at+"/new", "x")
	must(t, os.Chown(at+"/new", 5, 6))
	must(t, os.Mkdir(at+"/dir", 0o755))
	for path, want := range map[string][2]uint32{dir + "/new": {base + 5, base + 6}, dir + "/dir": {base, base}} {
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		if st.Uid != want[0] || st.Gid != want[1] {
			t.Errorf("%s belongs to %d and %d", path, st.Uid, st.Gid)
		}
	}
}

// TestNoLinkLeadsOutOfAView: the host must not follow a link of a sandbox to a file of its own.
func TestNoLinkLeadsOutOfAView(t *testing.T) {
	dir, secret := t.TempDir(), t.TempDir()
	write(t, secret+"/s", "secret")
	must(t, os.MkdirAll(dir+"/a/b", 0o755))
	write(t, dir+"/f", "inside")
	for name, to := range map[string]string{
		"abs": secret + "/s", "up": "../" + filepath.Base(secret) + "/s", "a/b/up": "../../../x", "a/far": "b/../../../f", "root": "/", "dots": "..",
		"good": "f", "a/b/good": "../../f", "a/good": "../a/../f", "here": dir + "/f", "beside": dir + "-beside",
	} {
		must(t, os.Symlink(to, dir+"/"+name))
	}
	_, at := view(t, dir, 0)
	for _, name := range []string{"abs", "up", "a/b/up", "a/far", "root", "dots", "beside"} {
		if _, err := os.ReadFile(at + "/" + name); !errors.Is(err, unix.EACCES) {
			t.Errorf("reading %s: %v", name, err)
		}
		if err := os.WriteFile(at+"/"+name, []byte("x"), 0o644); !errors.Is(err, unix.EACCES) {
			t.Errorf("writing %s: %v", name, err)
		}
		if _, err := os.Lstat(at + "/" + name); err != nil {
			t.Errorf("the link itself: %v", err)
		}
	}
	wantText(t, secret+"/s", "secret")
	for _, name := range []string{"good", "a/b/good", "a/good", "here"} {
		wantText(t, at+"/"+name, "inside")
	}
	write(t, at+"/here", "changed")
	wantText(t, dir+"/f", "changed")
}

// TestNoLinkWithTwoNamesLeadsOutOfAView: the kernel follows it from the name that it walked, which the server cannot
// know. A deep link within the view still leads there, and links to each other end. Cost: milliseconds.
func TestNoLinkWithTwoNamesLeadsOutOfAView(t *testing.T) {
	dir, secret := t.TempDir(), t.TempDir()
	write(t, secret+"/s", "secret")
	const depth = 40
	deep := strings.Repeat("/d", depth)
	must(t, os.MkdirAll(dir+deep, 0o755))
	up := strings.Repeat("../", depth)
	must(t, os.MkdirAll(dir+"/a", 0o755))
	write(t, dir+"/in", "inside")
	for name, to := range map[string]string{"/f": up + secret[1:] + "/s", deep + "/good": up + "in", "/loop": "a/../loop", "/a/two": "../a/three", "/a/three": "../a/two"} {
		must(t, os.Symlink(to, dir+name))
	}
	must(t, os.Link(dir+"/f", dir+deep+"/f"))
	_, at := view(t, dir, 0)
	for _, name := range []string{"/f", deep + "/f", "/f"} {
		if text, err := os.ReadFile(at + name); err == nil {
			t.Errorf("reading %s: %q", name, text)
		}
		if err := os.WriteFile(at+name, []byte("x"), 0o644); err == nil {
			t.Errorf("%s was written", name)
		}
		if to, err := os.Readlink(at + name); err == nil && (!strings.HasPrefix(to, at+"/") || strings.Contains(to, "..")) {
			t.Errorf("%s leads to %q", name, to)
		}
	}
	wantText(t, secret+"/s", "secret")
	wantText(t, at+deep+"/good", "inside")
	for _, name := range []string{"/loop", "/a/two"} {
		if _, err := os.ReadFile(at + name); !errors.Is(err, unix.ELOOP) {
			t.Errorf("reading %s: %v", name, err)
		}
	}
}

// TestAViewChangesItsDirectory: the mount stays, nothing of the first directory is held, and who waited sees the
// second.
func TestAViewChangesItsDirectory(t *testing.T) {
	treetest.NeedRoot(t)
	one, two := t.TempDir(), t.TempDir()
	must(t, unix.Mount("tmpfs", one, "tmpfs", 0, ""))
	must(t, os.MkdirAll(one+"/d", 0o755))
	must(t, os.MkdirAll(two+"/d", 0o755))
	write(t, one+"/d/f", "one")
	write(t, two+"/d/f", "two")
	v, at := view(t, one, 0)
	wantText(t, at+"/d/f", "one")
	held, err := os.OpenFile(at+"/d/f", os.O_RDWR, 0)
	must(t, err)
	defer held.Close()
	v.Leave()
	waited := make(chan string)
	go func() {
		text, err := os.ReadFile(at + "/d/f")
		if err != nil {
			text = []byte(err.Error())
		}
		waited <- string(text)
	}()
	must(t, unix.Unmount(one, 0)) // EBUSY if anything of it were open
	must(t, v.Enter(open(t, two), 0))
	if got := <-waited; got != "two" {
		t.Errorf("who waited read %q", got)
	}
	wantText(t, at+"/d/f", "two")
	_, _ = held.WriteAt([]byte("late"), 0) // goes nowhere
	wantText(t, two+"/d/f", "two")
}

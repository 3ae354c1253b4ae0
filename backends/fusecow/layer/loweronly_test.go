//go:build linux

package layer_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// newBare returns a bench with a lower and no layers.
func newLowerOnly(t *testing.T) *bench {
	b := newBench(t)
	b.layers = nil
	return b
}

// TestLowerOnlyListingIsWhole while lower files come and go, also when the kernel has cached a part.
func TestLowerOnlyListingIsWhole(t *testing.T) {
	const files = 500
	name := func(i int) string { return fmt.Sprintf("/dir/file-with-a-name-%03d", i) }
	for what, meanwhile := range map[string]func(path string) error{
		"nothing":           func(string) error { return nil },
		"it is removed":     os.Remove,
		"another is beside": func(path string) error { return os.WriteFile(path+"-too", nil, 0o644) },
	} {
		t.Run(what, func(t *testing.T) {
			b := newLowerOnly(t)
			b.must(os.Mkdir(b.lower+"/dir", 0o755))
			for i := range files {
				b.write(b.lower+name(i), "")
			}
			b.up()
			for range 2 { // the kernel caches a listing from the second read on
				_, err := os.ReadDir(b.mount + "/dir")
				b.must(err)
			}
			seen := treetest.ListInParts(t, b.mount+"/dir", func(seen map[string]bool) {
				for name := range seen {
					b.must(meanwhile(b.lower + "/dir/" + name))
				}
			})
			for i := range files {
				if !seen[filepath.Base(name(i))] {
					t.Errorf("%s is not there", name(i))
				}
			}
			b.down()
		})
	}
}

// TestCachedListingSendsNoRequests: the server is idle meanwhile.
func TestCachedListingSendsNoRequests(t *testing.T) {
	b := newLowerOnly(t)
	b.must(os.MkdirAll(b.lower+"/dir/sub", 0o755))
	b.write(b.lower+"/dir/file", "text")
	b.up()
	for range 2 {
		_, err := os.ReadDir(b.mount + "/dir")
		b.must(err)
	}
	time.Sleep(100 * time.Millisecond) // wait for pending requests
	b.must(b.server.Process.Signal(unix.SIGSTOP))
	listed := make(chan error)
	go func() {
		entries, err := os.ReadDir(b.mount + "/dir")
		if err == nil && len(entries) != 2 {
			err = fmt.Errorf("it lists %v", entries)
		}
		listed <- err
	}()
	select {
	case err := <-listed:
		b.must(errors.Join(err, b.server.Process.Signal(unix.SIGCONT)))
	case <-time.After(5 * time.Second):
		b.must(b.server.Process.Signal(unix.SIGCONT))
		t.Errorf("a list that is known took a request: %v", <-listed)
	}
	b.down()
}

// TestLowerOnlyHidesOverlayAttributes, which overlayfs has set in the lower.
func TestLowerOnlyHidesOverlayAttributes(t *testing.T) {
	b := newLowerOnly(t)
	b.write(b.lower+"/file", "text")
	for _, name := range []string{"trusted.overlay.metacopy", "user.overlay.redirect", "user.mine"} {
		b.must(unix.Setxattr(b.lower+"/file", name, []byte("x"), 0))
	}
	b.up()
	buf := make([]byte, 1000)
	for _, name := range []string{"trusted.overlay.metacopy", "user.overlay.redirect"} {
		if n, err := unix.Getxattr(b.mount+"/file", name, buf); err != unix.ENODATA {
			t.Errorf("%s is %q, %v", name, buf[:max(n, 0)], err)
		}
	}
	if n, err := unix.Listxattr(b.mount+"/file", buf); err != nil || string(buf[:n]) != "user.mine\x00" {
		t.Errorf("it lists %q, %v", buf[:max(n, 0)], err)
	}
	b.down()
}

// TestReopenedFileIsThePresentLowerFile although the closed file is still registered with the kernel.
func TestReopenedFileIsThePresentLowerFile(t *testing.T) {
	b := newLowerOnly(t)
	for _, name := range []string{"/replaced", "/removed", "/kept"} {
		b.write(b.lower+name, "old")
	}
	b.up()
	for range 3 {
		b.has(b.mount+"/replaced", "old")
		b.has(b.mount+"/removed", "old")
		b.has(b.mount+"/kept", "old")
	}
	b.write(b.lower+"/new", "new, and longer")
	b.must(os.Rename(b.lower+"/new", b.lower+"/replaced"))
	b.must(os.Remove(b.lower + "/removed"))
	within := time.Now().Add(5 * time.Second)
	for text := []byte(nil); string(text) != "new, and longer"; {
		var err error
		if text, err = os.ReadFile(b.mount + "/replaced"); err != nil && !errors.Is(err, unix.ESTALE) || time.Now().After(within) {
			t.Fatalf("what was replaced below reads %q, %v", text, err)
		}
	}
	for within := time.Now().Add(10 * time.Second); b.holdsRemoved(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(within) {
			t.Fatal("what was removed below is held for good")
		}
	}
	b.has(b.mount+"/kept", "old")
	b.down()
}

// holdsRemoved reports whether the server has a removed file of the lower directory open.
func (b *bench) holdsRemoved() bool {
	b.Helper()
	all, err := filepath.Glob("/proc/" + strconv.Itoa(b.server.Process.Pid) + "/fd/*")
	b.must(err)
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, b.lower+"/") && strings.HasSuffix(to, " (deleted)") {
			return true
		}
	}
	return false
}

// TestViewOfAnInodeNeverChanges while the kernel knows the inode; an overlay would otherwise show it twice or
// not at all.
func TestViewOfAnInodeNeverChanges(t *testing.T) {
	b := newLowerOnly(t)
	for _, name := range []string{"common", "apart", "grows", "told"} {
		b.write(b.lower+"/"+name, "small")
	}
	b.must(unix.Setxattr(b.lower+"/apart", "user.test", nil, 0))
	f, err := layer.Open(layer.Options{Lower: b.lower, ReadOnly: true})
	b.must(err)
	t.Cleanup(func() { b.must(errors.Join(f.Sync(), f.Close())) })
	look := func(name string, want layer.View) (id uint64) {
		t.Helper()
		e, err := f.Lookup(layer.RootID, name)
		b.must(err)
		if name == "told" {
			f.PinUncached(e.ID)
		}
		if side := f.View(e.ID); side != want {
			t.Errorf("%s is on side %d, want %d", name, side, want)
		}
		return e.ID
	}
	look("common", layer.Cached)
	look("apart", layer.Uncached)
	look("grows", layer.Cached)
	look("told", layer.Uncached)
	b.must(unix.Setxattr(b.lower+"/common", "user.test", nil, 0))
	b.must(unix.Removexattr(b.lower+"/apart", "user.test"))
	b.write(b.lower+"/grows", strings.Repeat("x", 1<<20+1))
	for _, id := range []uint64{look("common", layer.Cached), look("apart", layer.Uncached), look("grows", layer.Cached)} {
		f.Forget(id, 2)
	}
	if f.InodeCount() != 2 {
		t.Errorf("%d nodes are known, want the root and the one that was not forgotten", f.InodeCount())
	}
	look("common", layer.Uncached)
	look("apart", layer.Cached)
	look("grows", layer.Uncached)
}

// TestDirectoryMountedTwiceHasTwoInodes, because each may be in another view. The lower of an ordinary user
// includes submounts.
func TestDirectoryMountedTwiceHasTwoInodes(t *testing.T) {
	const env = "SNAPFS_TEST_TWICE"
	lower := os.Getenv(env)
	if lower == "" {
		treetest.NeedRoot(t)
		b := newLowerOnly(t)
		b.must(os.MkdirAll(b.lower+"/apart/dir", 0o755))
		b.must(os.Mkdir(b.lower+"/again", 0o755))
		b.must(unix.Setxattr(b.lower+"/apart", "user.test", nil, 0))
		b.must(unix.Mount(b.lower+"/apart/dir", b.lower+"/again", "", unix.MS_BIND, ""))
		t.Cleanup(func() { b.must(unix.Unmount(b.lower+"/again", 0)) })
		treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithEnv(env+"="+b.lower))
		return
	}
	f, err := layer.Open(layer.Options{Lower: lower, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	look := func(dir uint64, name string) uint64 {
		t.Helper()
		e, err := f.Lookup(dir, name)
		if err != nil || e.ID == 0 {
			t.Fatal(name, err)
		}
		return e.ID
	}
	again := look(layer.RootID, "again")
	if dir := look(look(layer.RootID, "apart"), "dir"); dir == again {
		t.Errorf("a directory is %d, and %d where it is mounted again", dir, again)
	}
	if once := look(layer.RootID, "again"); once != again {
		t.Errorf("one directory is %d, and then %d", again, once)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

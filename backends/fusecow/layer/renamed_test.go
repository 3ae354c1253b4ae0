//go:build linux

package layer_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// comes waits until a file has a text: a stale name is looked up again after its file could not be opened.
func (b *bench) comes(path, want string) {
	b.Helper()
	var got []byte
	var err error
	for within := time.Now().Add(5 * time.Second); time.Now().Before(within); time.Sleep(10 * time.Millisecond) {
		if got, err = os.ReadFile(path); err == nil && string(got) == want {
			return
		}
	}
	b.Errorf("%s holds %q, %v; want %q", path, got, err, want)
}

// TestLowerRenameShowsTheNewName, whatever was looked up before; changed files stay where they were changed.
func TestLowerRenameShowsTheNewName(t *testing.T) {
	for _, bare := range []bool{false, true} {
		t.Run(fmt.Sprintf("alone %t", bare), func(t *testing.T) {
			b := newBench(t)
			if bare {
				b.layers = nil
			}
			for _, dir := range []string{"/old", "/old/sub"} {
				b.must(os.Mkdir(b.lower+dir, 0o755))
			}
			for _, name := range []string{"/a", "/changed", "/old/x", "/old/sub/y"} {
				b.write(b.lower+name, "text of "+name)
			}
			b.must(os.Link(b.lower+"/a", b.lower+"/linked"))
			b.up()
			for _, name := range []string{"/a", "/linked", "/changed", "/old/x", "/old/sub/y"} {
				b.ino(b.mount + name)
			}
			if b.ino(b.mount+"/a") != b.ino(b.mount+"/linked") {
				t.Error("two names of one file lead to two")
			}
			if !bare {
				b.write(b.mount+"/changed", "mine")
			}
			b.must(os.Remove(b.lower + "/a"))
			for from, to := range map[string]string{"/changed": "/elsewhere", "/old": "/new"} {
				b.must(os.Rename(b.lower+from, b.lower+to))
			}
			b.comes(b.mount+"/linked", "text of /a")
			b.comes(b.mount+"/elsewhere", "text of /changed")
			b.comes(b.mount+"/new/x", "text of /old/x")
			b.comes(b.mount+"/new/sub/y", "text of /old/sub/y")
			if bare {
				b.down()
				return
			}
			b.has(b.mount+"/changed", "mine")
			b.must(os.Remove(b.mount + "/elsewhere"))
			b.has(b.mount+"/changed", "mine")
			b.must(os.Chmod(b.mount+"/new/x", 0o600))
			b.write(b.mount+"/new/sub/y", "mine too")
			b.write(b.mount+"/new/sub/z", "made")
			for _, crash := range []bool{false, true} {
				b.again(crash)
				b.has(b.mount+"/changed", "mine")
				b.has(b.mount+"/new/sub/y", "mine too")
				b.has(b.mount+"/new/sub/z", "made")
				if st, err := os.Stat(b.mount + "/new/x"); err != nil || st.Mode().Perm() != 0o600 {
					t.Errorf("new/x has another mode, %v", err)
				}
				if _, err := os.Lstat(b.mount + "/elsewhere"); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("what was removed is there: %v", err)
				}
			}
			b.down()
			if left := b.check(false); len(left) > 0 {
				t.Errorf("the layer is damaged: %v", left)
			}
		})
	}
}

// TestLowerDirectoryWithAReusedNumberIsANewInode: files created in it are in it after a remount.
func TestLowerDirectoryWithAReusedNumberIsANewInode(t *testing.T) {
	b := newBench(t)
	b.lower = treetest.Ext4(t, 64<<20)
	b.must(os.Mkdir(b.lower+"/a", 0o755))
	b.up()
	b.ino(b.mount + "/a") // looked up, not listed
	number := b.ino(b.lower + "/a")
	b.must(os.Remove(b.lower + "/a"))
	b.must(os.Mkdir(b.lower+"/b", 0o755))
	b.write(b.lower+"/b/x", "x")
	if again := b.ino(b.lower + "/b"); again != number {
		t.Fatalf("the number is not given again: %d, then %d", number, again)
	}
	f, err := os.OpenFile(b.mount+"/b/x", os.O_WRONLY|os.O_APPEND, 0)
	b.must(err)
	_, err = f.WriteString("y")
	b.must(errors.Join(err, f.Sync(), f.Close()))
	b.write(b.mount+"/b/new", "new")
	d, err := vfs.OpenDir(unix.AT_FDCWD, b.mount+"/b")
	b.must(err)
	b.must(errors.Join(d.Sync(), d.Close()))
	for _, crash := range []bool{false, true} {
		b.again(crash)
		b.has(b.mount+"/b/x", "xy")
		b.has(b.mount+"/b/new", "new")
	}
	b.down()
}

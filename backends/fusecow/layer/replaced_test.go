//go:build linux

package layer_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// TestChangesSurviveAReplacedLowerFile: editors save files by renaming new ones over them, and tools recreate
// directories, while a sandbox works on the old ones.
func TestChangesSurviveAReplacedLowerFile(t *testing.T) {
	b := newBench(t)
	b.must(os.MkdirAll(b.lower+"/dir/sub", 0o755))
	for _, name := range []string{"/edited", "/read", "/dir/sub/edited", "/dir/sub/other", "/dir/sub/chmod"} {
		b.write(b.lower+name, "old")
	}
	b.up()
	b.write(b.mount+"/edited", "mine")
	b.write(b.mount+"/dir/sub/edited", "mine")
	b.must(os.Chmod(b.mount+"/dir/sub/chmod", 0o400))
	if _, err := os.Stat(b.mount + "/read"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/edited", "/read"} {
		b.write(b.lower+"/new", "theirs, and longer")
		b.must(os.Rename(b.lower+"/new", b.lower+name))
	}
	b.must(os.Rename(b.lower+"/dir", b.lower+"/away"))
	b.must(os.MkdirAll(b.lower+"/dir/sub", 0o755))
	b.write(b.lower+"/dir/sub/other", "theirs")
	b.write(b.lower+"/dir/sub/chmod", "theirs")
	// A clean file that was replaced may fail once.
	within := time.Now().Add(5 * time.Second)
	for {
		text, err := os.ReadFile(b.mount + "/read")
		if string(text) == "theirs, and longer" {
			break
		}
		if !errors.Is(err, unix.ESTALE) || time.Now().After(within) {
			t.Fatalf("what was replaced below reads %q, %v", text, err)
		}
	}
	for _, when := range []bool{false, true, false} {
		b.has(b.mount+"/edited", "mine")
		b.has(b.mount+"/dir/sub/edited", "mine")
		st, err := os.Stat(b.mount + "/dir/sub/chmod")
		b.must(err)
		if st.Mode().Perm() != 0o400 {
			t.Errorf("mode %o, want 400", st.Mode().Perm())
		}
		b.at(func(root *os.File) { b.must(root.Sync()) })
		b.again(when)
	}
	b.has(b.mount+"/dir/sub/other", "theirs")
	b.down()
}

// TestChangesSurviveAnotherDevice: many filesystems get another device number at each mount, and a snapshot of
// a btrfs subvolume differs only in that. Logs stay valid.
func TestChangesSurviveAnotherDevice(t *testing.T) {
	b := newBench(t)
	top := treetest.Btrfs(t)
	dir := treetest.Open(t, top)
	b.must(btrfs.Create(int(dir.Fd()), "lower"))
	b.lower = top + "/lower"
	b.must(os.Mkdir(b.lower+"/dir", 0o755))
	for _, name := range []string{"/mode", "/dir/linked", "/dir/read"} {
		b.write(b.lower+name, "old")
	}
	b.up()
	b.must(os.Chmod(b.mount+"/mode", 0o600))
	b.must(os.Link(b.mount+"/dir/linked", b.mount+"/link"))
	b.must(os.Rename(b.mount+"/dir", b.mount+"/moved"))
	b.down()
	lower := treetest.Open(t, b.lower)
	b.must(btrfs.Snapshot(int(lower.Fd()), int(dir.Fd()), "again", false))
	b.lower = top + "/again"
	b.up()
	for _, name := range []string{"/mode", "/link", "/moved/linked", "/moved/read"} {
		b.has(b.mount+name, "old")
	}
	st, err := os.Stat(b.mount + "/mode")
	b.must(err)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("mode %o, want 600", st.Mode().Perm())
	}
	b.down()
}

// TestNewLowerFileIsNotTheRemovedOne: the user renames a file in the lower that was removed here and is still
// open.
func TestNewLowerFileIsNotTheRemovedOne(t *testing.T) {
	b := newBench(t)
	b.write(b.lower+"/old", "below\n")
	b.up()
	f, err := os.Open(b.mount + "/old")
	b.must(err)
	defer f.Close()
	b.must(os.Remove(b.mount + "/old"))
	b.must(os.Link(b.lower+"/old", b.lower+"/new"))
	b.write(b.mount+"/new", "above\n")
	b.must(f.Close())
	b.again(false)
	b.has(b.mount+"/new", "above\n")
	b.down()
}

// TestInodeNumberReusedBeforeCommit uses the new inode.
func TestInodeNumberReusedBeforeCommit(t *testing.T) {
	b := newBench(t)
	const files = 20
	name := func(dir, kind string, i int) string { return fmt.Sprintf("%s/%s%d", dir, kind, i) }
	for i := range files {
		b.write(name(b.lower, "old", i), "below\n")
	}
	b.up()
	for i := range files {
		b.must(os.Chmod(name(b.mount, "old", i), 0o600))
	}
	b.command("sync")
	for i := range files {
		b.must(os.Remove(name(b.mount, "old", i)))
		b.must(os.Rename(name(b.lower, "old", i), name(b.lower, "new", i)))
	}
	time.Sleep(100 * time.Millisecond) // the kernel forgets them
	for i := range files {
		b.must(os.Chmod(name(b.mount, "new", i), 0o640))
	}
	b.command("sync")
	b.again(true)
	for i := range files {
		st, err := vfs.Lstat(unix.AT_FDCWD, name(b.mount, "new", i))
		if b.must(err); st.Mode&0o777 != 0o640 {
			t.Errorf("%d: mode %o", i, st.Mode)
		}
	}
	b.down()
}

// TestLowerReplacementIsAnotherInode, also after a remount.
func TestLowerReplacementIsAnotherInode(t *testing.T) {
	b := newBench(t)
	b.write(b.lower+"/file", "below\n")
	b.up()
	b.must(os.Chmod(b.mount+"/file", 0o600))
	b.must(os.Remove(b.lower + "/file"))
	b.must(os.Rename(b.mount+"/file", b.mount+"/moved"))
	b.command("sync")
	b.write(b.lower+"/another", "")
	b.write(b.lower+"/file", "theirs\n")
	b.again(false)
	b.must(os.Chmod(b.mount+"/file", 0o640))
	for range 2 {
		b.has(b.mount+"/file", "theirs\n")
		if got, err := os.ReadFile(b.mount + "/moved"); !errors.Is(err, unix.ESTALE) {
			t.Errorf("what is gone holds %q, %v", got, err)
		}
		b.again(false)
	}
	b.down()
}

// TestFilesThatAppearAreOpened: a program looked for a file before the user made it, and the kernel remembers that
// there was none. A program that would make it gets the user's file, or its error is that of O_EXCL.
func TestFilesThatAppearAreOpened(t *testing.T) {
	b := newBench(t)
	b.up()
	for _, name := range []string{"/written", "/appended", "/exclusive", "/made", "/linked"} {
		if _, err := os.Stat(b.mount + name); !errors.Is(err, unix.ENOENT) {
			t.Fatalf("%s: %v", name, err)
		}
		b.write(b.lower+name, "theirs\n")
	}
	b.write(b.mount+"/written", "mine\n")
	f, err := os.OpenFile(b.mount+"/appended", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	b.must(err)
	_, err = f.WriteString("mine\n")
	b.must(errors.Join(err, f.Close()))
	if _, err := os.OpenFile(b.mount+"/exclusive", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); !errors.Is(err, unix.EEXIST) {
		t.Errorf("with O_EXCL: %v", err)
	}
	if err := os.Mkdir(b.mount+"/made", 0o755); !errors.Is(err, unix.EEXIST) {
		t.Errorf("mkdir: %v", err)
	}
	if err := os.Symlink("written", b.mount+"/linked"); !errors.Is(err, unix.EEXIST) {
		t.Errorf("symlink: %v", err)
	}
	for range 2 {
		b.has(b.mount+"/written", "mine\n")
		b.has(b.mount+"/appended", "theirs\nmine\n")
		b.again(false)
	}
	b.has(b.lower+"/written", "theirs\n")
	b.down()
}

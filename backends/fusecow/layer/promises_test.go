//go:build linux

package layer_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func TestHardLinksStayTogetherWithTheirNumber(t *testing.T) {
	b := newBench(t)
	b.write(b.lower+"/a", "old")
	b.must(os.Link(b.lower+"/a", b.lower+"/b"))
	b.up()
	number := b.ino(b.mount + "/a")
	b.write(b.mount+"/b", "new")
	b.must(os.Rename(b.mount+"/b", b.mount+"/c"))
	check := func(when string) {
		t.Helper()
		b.has(b.mount+"/a", "new")
		st, err := vfs.Lstat(unix.AT_FDCWD, b.mount+"/c")
		b.must(err)
		if st.Ino != number || st.Nlink != 2 || b.ino(b.mount+"/a") != number {
			t.Errorf("%s: number %d of %d names, was %d of 2", when, st.Ino, st.Nlink, number)
		}
	}
	check("at once")
	b.again(false)
	check("mounted again")
	b.freeze()
	check("after a freeze")
	b.down()
	b.has(b.lower+"/b", "old")
}

func TestRenameOfADirectoryCopiesNothing(t *testing.T) {
	b := newBench(t)
	b.must(os.MkdirAll(b.lower+"/dir/sub", 0o755))
	b.write(b.lower+"/dir/sub/file", "text")
	b.write(b.lower+"/dir/gone", "text")
	b.up()
	b.must(os.Remove(b.mount + "/dir/gone"))
	b.must(os.Rename(b.mount+"/dir", b.mount+"/moved"))
	b.must(os.Mkdir(b.mount+"/dir", 0o755))
	for range 2 {
		b.has(b.mount+"/moved/sub/file", "text")
		for dir, want := range map[string]string{"/dir": "", "/moved": "sub", "": "dir moved"} {
			if got := b.list(b.mount + dir); got != want {
				t.Errorf("in %q are %q, want %q", dir, got, want)
			}
		}
		b.at(func(root *os.File) { b.must(root.Sync()) })
		b.again(true)
	}
	b.down()
	if n := b.contents(); n != 0 {
		t.Errorf("%d files of content lie in the layer", n)
	}
}

// list returns the names in a directory, joined.
func (b *bench) list(dir string) string {
	b.Helper()
	entries, err := os.ReadDir(dir)
	b.must(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// contents counts the content files of all layers.
func (b *bench) contents() (n int) {
	b.Helper()
	for _, l := range b.layers {
		b.must(filepath.WalkDir(l+"/data", func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				n++
			}
			return err
		}))
	}
	return n
}

func TestUnlinkedOpenFilesLiveUntilClosed(t *testing.T) {
	b := newBench(t)
	b.write(b.lower+"/below", "from below")
	b.up()
	b.write(b.mount+"/above", "from above")
	for _, name := range []string{"/below", "/above"} {
		f, err := os.OpenFile(b.mount+name, os.O_RDWR, 0)
		b.must(err)
		b.must(os.Remove(b.mount + name))
		_, err = f.WriteAt([]byte("FROM"), 0)
		b.must(err)
		b.has(vfs.FDPath(f), "FROM "+name[1:])
		f.Close()
	}
	tmp, err := unix.Open(b.mount, unix.O_TMPFILE|unix.O_RDWR, 0o600)
	b.must(err)
	file := os.NewFile(uintptr(tmp), "tmp")
	_, err = file.WriteString("kept")
	b.must(err)
	b.must(unix.Linkat(unix.AT_FDCWD, vfs.FDPath(file), unix.AT_FDCWD, b.mount+"/tmp", unix.AT_SYMLINK_FOLLOW))
	file.Close()
	b.has(b.mount+"/tmp", "kept")
	b.again(false)
	b.has(b.mount+"/tmp", "kept")
	b.down()
	if n := b.contents(); n != 1 {
		t.Errorf("%d files of content lie in the layer, want that of tmp", n)
	}
}

// TestKilledServerLosesNothingSynced: sizes and renames are there, and the layer can be changed again.
func TestKilledServerLosesNothingSynced(t *testing.T) {
	b := newBench(t)
	b.write(b.lower+"/old", "of the tree below")
	b.up()
	b.must(os.Mkdir(b.mount+"/dir", 0o750))
	f, err := os.Create(b.mount + "/dir/file")
	b.must(err)
	_, err = f.WriteString("synced")
	b.must(err)
	b.must(f.Sync())
	b.must(os.Rename(b.mount+"/old", b.mount+"/dir/new"))
	b.must(f.Sync())
	_, err = f.WriteString(", and more") // reaches the file, perhaps not the log
	b.must(err)
	f.Close()
	b.again(true)
	b.has(b.mount+"/dir/file", "synced, and more")
	b.has(b.mount+"/dir/new", "of the tree below")
	b.write(b.mount+"/dir/new", "short")
	b.must(os.Truncate(b.mount+"/dir/new", 8))
	b.has(b.mount+"/dir/new", "short\x00\x00\x00")
	b.down()
}

// TestKillBeforeTheFirstFrameLeavesNoContent: a later file with the same number does not get the lost content.
func TestKillBeforeTheFirstFrameLeavesNoContent(t *testing.T) {
	b := newBench(t)
	b.up()
	b.freeze()
	b.write(b.mount+"/lost", "of a file that was never synced")
	b.again(true)
	b.write(b.mount+"/new", "")
	b.at(func(root *os.File) { b.must(root.Sync()) })
	b.again(true)
	b.has(b.mount+"/new", "")
	b.down()
	if n := b.contents(); n != 0 {
		t.Errorf("%d files of content lie in the layers", n)
	}
}

// TestTornLogIsReadUpToTheTear truncates the log at every length, and flips each byte. In the first frame,
// which another follows, that is damage.
func TestTornLogIsReadUpToTheTear(t *testing.T) {
	b := newBench(t)
	b.write(b.lower+"/a", "1")
	b.up()
	b.must(os.Rename(b.mount+"/a", b.mount+"/b"))
	b.at(func(root *os.File) { b.must(root.Sync()) })
	b.kill()
	whole, err := os.ReadFile(b.layers[0] + "/log")
	b.must(err)
	open := func(log []byte) error {
		b.must(os.WriteFile(b.layers[0]+"/log", log, 0o600))
		f, err := layer.Open(layer.Options{Lower: b.lower, Layers: b.layers})
		if err == nil {
			b.must(f.Close())
		}
		return err
	}
	for n := range whole {
		b.must(open(whole[:n]))
	}
	for n := 8; n < len(whole); n++ {
		spoilt := append([]byte{}, whole...)
		spoilt[n] ^= 0x55
		if err := open(spoilt); n < b.frames(whole)[1] != errors.Is(err, logfile.ErrDamaged) {
			t.Errorf("with byte %d spoilt of %v: %v", n, b.frames(whole), err)
		}
	}
	if err := open(append([]byte("not a log"), whole...)); !errors.Is(err, logfile.ErrDamaged) {
		t.Errorf("a log that is none gives %v", err)
	}
}

// TestCachedReadsSendNoRequests: a second open reaches no server, so changes of the lower by others are not
// seen.
func TestCachedReadsSendNoRequests(t *testing.T) {
	b := newBench(t)
	b.write(b.lower+"/file", "first")
	b.up()
	b.has(b.mount+"/file", "first")
	b.write(b.lower+"/file", "other")
	b.has(b.mount+"/file", "first")
	b.down()
}

func TestTopLayerHasOneOwner(t *testing.T) {
	b := newBench(t)
	b.up()
	_, err := layer.Open(layer.Options{Lower: b.lower, Layers: b.layers})
	if !errors.Is(err, unix.EBUSY) {
		t.Errorf("a second owner gets %v, want %v", err, unix.EBUSY)
	}
	b.down()
}

// TestPOSIX runs go-fuse's suite, each test in a directory of its own.
func TestPOSIX(t *testing.T) {
	b := newBench(t)
	b.up()
	for name, test := range posixtest.All {
		if name == "FcntlFlockLocksFile" {
			continue // wants a process to exclude itself, which fcntl(2) does on no filesystem
		}
		if name == "OpenSymlinkRace" && testing.Short() {
			continue // seconds of opening
		}
		t.Run(name, func(t *testing.T) {
			dir := b.mount + "/" + name
			b.must(os.Mkdir(dir, 0o755))
			test(t, dir)
		})
	}
	b.down()
}

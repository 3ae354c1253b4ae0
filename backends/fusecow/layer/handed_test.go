//go:build linux

package layer_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// TestSwitchUpdatesNamesInOpenDirectories: a deleted name is back, and a name that the state lacks is gone.
func TestSwitchUpdatesNamesInOpenDirectories(t *testing.T) {
	b := newBench(t)
	b.write(b.lower+"/deleted", "below\n")
	b.write(b.lower+"/there", "below\n")
	b.up()
	b.must(os.Remove(b.mount + "/there"))
	b.freeze()
	without := b.layers[:1]
	b.goTo(nil)
	open := map[string]*os.File{}
	names := func(name string, want int) {
		t.Helper()
		var st unix.Stat_t
		b.must(unix.Fstat(int(open[name].Fd()), &st))
		if int(st.Nlink) != want {
			t.Errorf("what is open, %s, has %d names, want %d", name, st.Nlink, want)
		}
	}
	for _, name := range []string{"deleted", "there"} {
		f, err := os.OpenFile(b.mount+"/"+name, os.O_RDWR, 0)
		b.must(err)
		defer f.Close()
		open[name] = f
		names(name, 1)
	}
	b.must(os.Remove(b.mount + "/deleted"))
	names("deleted", 0)
	b.goTo(without)
	names("deleted", 1)
	names("there", 0)
	b.has(b.mount+"/deleted", "below\n")
	_, err := open["deleted"].WriteAt([]byte("again\n"), 0)
	b.must(err)
	b.has(b.mount+"/deleted", "again\n")
	for _, f := range open {
		f.Close()
	}
	b.again(false)
	b.has(b.mount+"/deleted", "again\n")
	b.down()
	for _, p := range b.check(false) {
		t.Error(p)
	}
}

// TestSwitchKeepsOpenSparseUppers with all their content.
func TestSwitchKeepsOpenSparseUppers(t *testing.T) {
	l := newLarge(t)
	l.must(os.Remove(l.path))
	l.freeze()
	without := l.layers[:1]
	l.goTo(nil)
	l.put("x", 123_456)
	l.put("beyond it", len(l.want)+100_000)
	l.want = append(l.want, make([]byte, 100_000)...)
	l.must(os.Truncate(l.path, int64(len(l.want))))
	f, err := os.OpenFile(l.path, os.O_RDWR, 0)
	l.must(err)
	defer f.Close()
	l.goTo(without)
	_, err = f.WriteAt([]byte("y"), 5)
	l.must(err)
	l.want[5] = 'y'
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, l.want) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(l.want))
	}
	f.Close()
	l.down()
	l.counted()
	if n := l.holds(); n != 0 {
		t.Errorf("%d bytes of content are left", n)
	}
}

// TestReadersDuringASwitchSeeTheNewState: the kernel also drops names that were looked up just before.
func TestReadersDuringASwitchSeeTheNewState(t *testing.T) {
	b := newBench(t)
	b.up()
	var files []string
	for i := range treetest.Budget(t, 1000, 3000) {
		dir := fmt.Sprintf("%s/%d", b.mount, i)
		b.must(os.Mkdir(dir, 0o755))
		files = append(files, dir+"/f")
		b.write(dir+"/f", "first\n")
	}
	b.freeze()
	state := b.layers[:1]
	for _, f := range files {
		b.must(os.Remove(f))
		b.write(f, "second\n")
	}
	b.again(false) // so that the kernel has nothing cached
	var looking sync.WaitGroup
	looking.Go(func() {
		for _, f := range files {
			_, _ = os.Lstat(f) // it exists all the time
		}
	})
	b.goTo(state)
	looking.Wait()
	for _, f := range files {
		b.has(f, "first\n")
		b.write(f, "third\n")
	}
	b.again(false)
	for _, f := range files {
		b.has(f, "third\n")
	}
	b.down()
}

// TestSwitchShowsALowerFileThatWasReplaced: a file changed here and replaced in the lower is the present lower
// file.
func TestSwitchShowsALowerFileThatWasReplaced(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"written", "open", "mode", "dir/f"} {
		b.must(os.MkdirAll(filepath.Dir(b.lower+"/"+name), 0o755))
		b.write(b.lower+"/"+name, "below\n")
	}
	b.up()
	for _, name := range []string{"written", "open", "dir/f"} {
		b.write(b.mount+"/"+name, "above\n")
	}
	b.must(os.Chmod(b.mount+"/mode", 0o600))
	b.must(os.Chmod(b.mount+"/dir", 0o700))
	f, err := os.Open(b.mount + "/open")
	b.must(err)
	defer f.Close()
	b.must(os.Rename(b.lower+"/dir", b.lower+"/away"))
	for _, name := range []string{"written", "open", "mode", "dir/f"} {
		b.must(os.MkdirAll(filepath.Dir(b.lower+"/"+name), 0o755))
		b.write(b.lower+"/"+name+".new", "theirs, which is longer\n")
		b.must(os.Rename(b.lower+"/"+name+".new", b.lower+"/"+name))
	}
	b.freeze()
	changed := b.layers[:1]
	b.goTo(nil)
	for _, name := range []string{"written", "open", "mode", "dir/f"} {
		b.has(b.mount+"/"+name, "theirs, which is longer\n")
	}
	b.goTo(changed)
	for _, name := range []string{"written", "open", "dir/f"} {
		b.has(b.mount+"/"+name, "above\n")
		b.write(b.mount+"/"+name, "above, and again\n")
		b.has(b.mount+"/"+name, "above, and again\n")
	}
	b.goTo(nil)
	for _, name := range []string{"written", "open", "mode", "dir/f"} {
		b.has(b.mount+"/"+name, "theirs, which is longer\n")
		b.write(b.mount+"/"+name, "above once more\n")
	}
	if got, err := io.ReadAll(f); err != nil || string(got) != "above, and again\n" {
		t.Errorf("what is open, and has no name any more, holds %q, %v", got, err)
	}
	f.Close()
	b.again(false)
	for _, name := range []string{"written", "open", "mode", "dir/f"} {
		b.has(b.mount+"/"+name, "above once more\n")
	}
	b.down()
}

// TestSwitchMakesLostContentStale: a part was in a lower file that has changed.
func TestSwitchMakesLostContentStale(t *testing.T) {
	l := newLarge(t)
	l.must(os.Remove(l.path))
	l.freeze()
	without := l.layers[:1]
	l.goTo(nil)
	l.put("x", 123_456)
	f, err := os.Open(l.path)
	l.must(err)
	defer f.Close()
	l.write(l.lower+"/large", "theirs\n")
	l.goTo(without)
	if got, err := io.ReadAll(f); !errors.Is(err, unix.ESTALE) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	f.Close()
	l.down()
	l.counted()
	if n := l.holds(); n != 0 {
		t.Errorf("%d bytes of content are left", n)
	}
}

// TestSwitchBringsBackADirectoryInUse, by a state without it and then one with it.
func TestSwitchBringsBackADirectoryInUse(t *testing.T) {
	b := newBench(t)
	b.must(os.MkdirAll(b.lower+"/dir/sub", 0o755))
	b.write(b.lower+"/dir/f", "below\n")
	b.up()
	b.write(b.mount+"/dir/one", "above\n")
	b.must(os.Mkdir(b.mount+"/made", 0o755))
	b.write(b.mount+"/made/one", "above\n")
	b.freeze()
	with := b.layers[:1]
	b.must(errors.Join(os.RemoveAll(b.mount+"/dir"), os.RemoveAll(b.mount+"/made")))
	b.freeze()
	without := b.layers[:2]
	b.goTo(with)
	want := map[string][]string{"dir": {"f", "one", "sub"}, "dir/sub": nil, "made": {"one"}}
	open := map[string]*os.File{}
	for name := range want {
		f, err := os.Open(b.mount + "/" + name)
		b.must(err)
		defer f.Close()
		open[name] = f
	}
	look := func(when string, there bool) {
		t.Helper()
		for name, f := range open {
			_, err := f.Seek(0, io.SeekStart)
			b.must(err)
			names, err := f.Readdirnames(-1)
			b.must(err)
			slices.Sort(names)
			if !there && len(names) > 0 || there && !slices.Equal(names, want[name]) {
				t.Errorf("%s, %s has %q", when, name, names)
			}
		}
	}
	for range 2 {
		look("there", true)
		b.goTo(without)
		look("gone", false)
		file := b.mount + "/file"
		b.write(file, "above\n")
		for name, f := range open {
			if err := unix.Renameat(unix.AT_FDCWD, file, int(f.Fd()), "into"); err != unix.ENOENT {
				t.Errorf("moved into %s: %v", name, err)
			}
			if err := unix.Linkat(unix.AT_FDCWD, file, int(f.Fd()), "into", 0); err != unix.ENOENT {
				t.Errorf("linked into %s: %v", name, err)
			}
		}
		b.has(file, "above\n")
		b.goTo(with)
	}
	b.goTo(nil)
	b.goTo(with)
	look("there once more", true)
	for _, f := range open {
		f.Close()
	}
	b.down()
	for _, p := range b.check(false) {
		t.Error(p)
	}
}

// TestSwitchBringsBackARemovedDirectory, into which the kernel itself would never look again.
func TestSwitchBringsBackARemovedDirectory(t *testing.T) {
	b := newBench(t)
	dirs := []string{"dir", "dir/sub", "over", "made"}
	for _, d := range dirs[:3] {
		b.must(os.Mkdir(b.lower+"/"+d, 0o755))
		b.write(b.lower+"/"+d+"/f", "there\n")
	}
	b.up()
	b.must(os.Mkdir(b.mount+"/made", 0o755))
	b.write(b.mount+"/made/f", "there\n")
	b.freeze()
	with := b.layers[:1]
	var open []*os.File
	for range 3 {
		for _, d := range dirs {
			f, err := os.Open(b.mount + "/" + d)
			b.must(err)
			open = append(open, f)
		}
		b.must(errors.Join(os.RemoveAll(b.mount+"/dir"), os.RemoveAll(b.mount+"/made"), os.Remove(b.mount+"/over/f")))
		b.must(errors.Join(os.Mkdir(b.mount+"/new", 0o755), unix.Rename(b.mount+"/new", b.mount+"/over")))
		b.freeze()
		without := b.layers[:len(b.layers)-1]
		for range 2 {
			b.goTo(without)
			b.goTo(with)
			for _, d := range dirs {
				b.has(b.mount+"/"+d+"/f", "there\n")
				b.write(b.mount+"/"+d+"/more", "more\n")
				if names, err := os.ReadDir(b.mount + "/" + d); err != nil || len(names) < 2 {
					t.Errorf("%s has %v, %v", d, names, err)
				}
				b.must(os.Remove(b.mount + "/" + d + "/more"))
			}
		}
	}
	for _, f := range open {
		f.Close()
	}
	b.down()
}

// TestSwitchFindsAddedNames that were looked up while their directory did not exist.
func TestSwitchFindsAddedNames(t *testing.T) {
	b := newBench(t)
	b.must(os.Mkdir(b.lower+"/dir", 0o755))
	b.write(b.lower+"/dir/f", "below\n")
	b.up()
	b.must(os.RemoveAll(b.mount + "/dir"))
	b.freeze()
	without := b.layers[:1]
	b.goTo(nil)
	dir, err := os.Open(b.mount + "/dir")
	b.must(err)
	b.goTo(without)
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), "f", &st, 0); err != unix.ENOENT {
		t.Errorf("a file of a directory that is not there: %v", err)
	}
	b.goTo(nil)
	b.has(b.mount+"/dir/f", "below\n")
	dir.Close()
	b.down()
}

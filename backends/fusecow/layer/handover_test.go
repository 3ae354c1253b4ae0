//go:build linux

package layer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// switchTo switches a mount to other layers.
func switchTo(server *mount.Server, o layer.Options) (*layer.FS, error) {
	if err := server.Flush(); err != nil {
		return nil, err
	}
	f, err := layer.Open(o)
	if err == nil {
		err = server.Switch(f, func() error { return nil })
	}
	return f, err
}

// goTo continues above frozen layers while the tree is mounted.
func (b *bench) goTo(layers []string) {
	b.Helper()
	b.layers = append(append([]string{}, layers...), b.nextLayer())
	b.command("switch " + strings.Join(b.layers, " "))
}

// TestSwitchShowsTheState switches to random states of a mount, with a warm kernel cache, and changes files
// there.
func TestSwitchShowsTheState(t *testing.T) {
	rounds := treetest.Budget(t, 10, 25)
	type state struct {
		layers []string
		held   string
		w      *treetest.Writer
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	b := newBench(t)
	w := treetest.NewWriter(seed, treetest.Powers{Root: true})
	lower := treetest.Open(t, b.lower)
	for _, s := range []treetest.Script{w.Deep(), w.Script(150)} {
		b.must(s.Play(lower))
	}
	content := func() (now string) {
		b.at(func(root *os.File) {
			var text strings.Builder
			b.must(treetest.WriteManifest(&text, root, treetest.Options{}))
			now = text.String()
		})
		return now
	}
	b.up()
	states := []state{{nil, content(), w.Branch()}}
	for i := range rounds {
		b.at(func(root *os.File) { b.must(w.Script(40).Play(root)) })
		states = append(states, state{append([]string{}, b.layers...), content(), w.Branch()})
		b.freeze()
		b.at(func(root *os.File) { b.must(w.Script(20).Play(root)) })
		to := states[rnd.IntN(len(states))]
		b.goTo(to.layers)
		w = to.w.Branch()
		if lines := treetest.Lines(to.held, content()); len(lines) > 0 {
			t.Fatalf("round %d: %d differences to what was in %q: %.2000q", i, len(lines), to.layers, lines)
		}
		if i%5 == 4 {
			b.again(i%2 == 0)
			if lines := treetest.Lines(to.held, content()); len(lines) > 0 {
				t.Fatalf("round %d, mounted again: %d differences: %.2000q", i, len(lines), lines)
			}
		}
	}
	b.down()
	b.counted()
	for _, p := range b.check(false) {
		t.Error(p)
	}
}

// TestSwitchOfOpenFiles: a file that both states have stays the same file; one that is missing in the new state
// lives on unlinked.
func TestSwitchOfOpenFiles(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"below", "gone", "cut", "dir/child"} {
		b.must(os.MkdirAll(filepath.Dir(b.lower+"/"+name), 0o755))
		b.write(b.lower+"/"+name, "below\n")
	}
	b.up()
	b.write(b.mount+"/made", "first\n")
	b.freeze()
	state := b.layers[:1]

	open := map[string]*os.File{}
	for _, name := range []string{"below", "made", "cut", "dir", "gone"} {
		f, err := os.OpenFile(b.mount+"/"+name, map[bool]int{true: unix.O_RDONLY, false: unix.O_RDWR}[name == "dir"], 0)
		b.must(err)
		defer f.Close()
		open[name] = f
	}
	mapped, err := unix.Mmap(int(open["below"].Fd()), 0, 6, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	b.must(err)
	defer unix.Munmap(mapped)
	copy(mapped, "mapped")
	made, err := unix.Mmap(int(open["made"].Fd()), 0, 6, unix.PROT_READ, unix.MAP_SHARED)
	b.must(err)
	defer unix.Munmap(made)
	b.write(b.mount+"/made", "second, and longer\n")
	b.must(errors.Join(os.Truncate(b.mount+"/cut", 0), os.Remove(b.mount+"/gone"), os.Rename(b.mount+"/dir", b.mount+"/moved"), os.Mkdir(b.mount+"/dir", 0o700)))
	var later []*os.File
	for i, layers := range []int{0, 1} { // in the top layer, and in a frozen layer
		f, err := os.Create(fmt.Sprintf("%s/later%d", b.mount, i))
		b.must(err)
		defer f.Close()
		_, err = f.WriteString("later\n")
		b.must(err)
		later = append(later, f)
		if layers == 0 {
			b.freeze()
		}
	}
	inside, err := os.Open(b.mount + "/dir")
	b.must(err)
	defer inside.Close()

	b.goTo(state)
	b.has(b.mount+"/below", "below\n")
	b.has(b.mount+"/made", "first\n")
	b.has(b.mount+"/cut", "below\n")
	b.has(b.mount+"/gone", "below\n")
	b.has(b.mount+"/dir/child", "below\n")
	if string(mapped) != "below\n" || string(made) != "first\n" {
		t.Errorf("what is mapped: %q, %q", mapped, made)
	}
	for _, name := range []string{"below", "made", "cut", "gone"} {
		got := make([]byte, 100)
		n, err := open[name].ReadAt(got, 0)
		if want := map[bool]string{true: "first\n", false: "below\n"}[name == "made"]; string(got[:n]) != want {
			t.Errorf("what is open, %s, holds %q, %v", name, got[:n], err)
		}
		if _, err := open[name].WriteAt([]byte("again\n"), 0); err != nil {
			t.Error(err)
		}
		b.has(b.mount+"/"+name, "again\n")
	}
	if string(mapped) != "again\n" {
		t.Errorf("what is mapped does not follow what is written: %q", mapped)
	}
	if names, err := open["dir"].Readdirnames(-1); err != nil || len(names) != 1 || names[0] != "child" {
		t.Errorf("the open directory has %q, %v", names, err)
	}
	if err := unix.Faccessat(int(inside.Fd()), "child", unix.F_OK, 0); err != unix.ENOENT {
		t.Errorf("in a directory that is no more: %v", err)
	}
	for _, f := range later {
		var st unix.Stat_t
		b.must(unix.Fstat(int(f.Fd()), &st))
		if st.Nlink != 0 || st.Size != 6 {
			t.Errorf("%s: %d names, %d bytes", f.Name(), st.Nlink, st.Size)
		}
		if _, err := f.WriteString("more\n"); err != nil {
			t.Error(err)
		}
		got := make([]byte, 11)
		if _, err := f.ReadAt(got, 0); err != nil || string(got) != "later\nmore\n" {
			t.Errorf("%s holds %q, %v", f.Name(), got, err)
		}
		if _, err := os.Lstat(f.Name()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", f.Name(), err)
		}
		f.Close()
	}
	for _, f := range open {
		f.Close()
	}
	inside.Close()
	b.must(errors.Join(unix.Munmap(mapped), unix.Munmap(made)))
	b.again(false)
	for _, name := range []string{"below", "made", "cut", "gone"} {
		b.has(b.mount+"/"+name, "again\n")
	}
	b.has(b.mount+"/dir/child", "below\n")
	b.down()
	if n := b.contents(); n != 5 {
		t.Errorf("%d files have content, want 5", n)
	}
	for _, p := range b.check(false) {
		t.Error(p)
	}
}

//go:build linux

package layer_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// merge merges layers[from:to]. A running server need not know.
func (b *bench) merge(from, to int) {
	b.Helper()
	into := b.nextLayer()
	b.must(logfile.Merge(b.stack(), from, to, into))
	places := []int{}
	for i := range b.layers {
		if i < from || i >= to-1 {
			places = append(places, b.index(i))
		}
	}
	b.layers, b.indexes = slices.Replace(slices.Clone(b.layers), from, to, into), places
}

// originals returns the originals that the layers have saved.
func (b *bench) originals() map[string]string {
	b.Helper()
	all, err := logfile.Originals(b.layers)
	b.must(err)
	saved := map[string]string{}
	for _, o := range all {
		text, err := os.ReadFile(o.File)
		b.must(err)
		saved[o.Path] = string(text)
	}
	return saved
}

// touched returns the paths at which the layers may differ from the lower.
func (b *bench) touched() []string {
	b.Helper()
	all := map[string]bool{}
	b.must(layer.Compare(layer.Options{Lower: b.lower}, b.options(), 0, 0, func(path string, tree bool) error {
		all[fmt.Sprint(path, " ", tree)] = true
		return nil
	}))
	return slices.Sorted(maps.Keys(all))
}

// TestMergedLayersHoldTheSameTree without superseded changes, and with all originals.
func TestMergedLayersHoldTheSameTree(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b", "c"} {
		b.write(b.lower+"/"+name, "below "+name)
	}
	b.up()
	b.write(b.mount+"/a", "first")
	b.write(b.mount+"/made", "first")
	b.write(b.mount+"/passing", "first")
	nameless, err := os.OpenFile(b.mount, os.O_RDWR|unix.O_TMPFILE, 0o600)
	b.must(err)
	_, err = nameless.WriteString("nameless")
	b.must(err)
	b.freeze()
	b.write(b.mount+"/a", "second")
	b.write(b.mount+"/b", "second")
	b.must(errors.Join(os.Remove(b.mount+"/passing"), os.Remove(b.mount+"/c"), os.Rename(b.mount+"/made", b.mount+"/moved")))
	b.freeze()
	b.must(os.Chmod(b.mount+"/moved", 0o600)) // its content is in the first layer
	b.must(unix.Linkat(int(nameless.Fd()), "", unix.AT_FDCWD, b.mount+"/named", unix.AT_EMPTY_PATH))
	b.must(nameless.Close())
	b.freeze()
	b.down()
	tree, originals, touched := b.tree(), b.originals(), b.touched()
	b.merge(0, 2)
	if got := b.tree(); got != tree {
		t.Errorf("%q", treetest.Lines(tree, got))
	}
	b.must(os.RemoveAll(b.options().Layers[0] + "/../layer0"))
	b.must(os.RemoveAll(b.options().Layers[0] + "/../layer1"))
	if got := b.tree(); got != tree {
		t.Errorf("with the old ones gone: %q", treetest.Lines(tree, got))
	}
	if got := b.originals(); !maps.Equal(got, originals) || len(got) != 2 {
		t.Errorf("of the tree below is kept %q; it was %q", got, originals)
	}
	passing := func(path string) bool { return path == "made false" || path == "passing false" }
	if got := b.touched(); !slices.Equal(got, slices.DeleteFunc(touched, passing)) {
		t.Errorf("touched is %q; it was %q", got, touched)
	}
	for _, p := range b.check(false) {
		t.Error(p)
	}
	u, err := quota.OfLayer(b.layers[0], b.index(0))
	b.must(err)
	if want := int64(4); u.Inodes != want { // the root, a, b, moved
		t.Errorf("it tells of %d nodes, want %d", u.Inodes, want)
	}
	if n := len(b.list(b.layers[0] + "/data")); n == 0 {
		t.Error("it has no content")
	}
}

// TestMergeRefusesUnmergeableLayers: with a sparse upper across them, or with something set aside.
func TestMergeRefusesUnmergeableLayers(t *testing.T) {
	l := newLarge(t)
	l.put("first", 0)
	l.freeze()
	l.put("second", 100_000)
	l.freeze()
	l.put("third", 200_000)
	l.freeze()
	l.down()
	uncached := func(why string, from, to int) {
		t.Helper()
		into := l.nextLayer()
		if err := logfile.Merge(l.stack(), from, to, into); !errors.Is(err, logfile.ErrNotMergeable) {
			t.Errorf("%s: %v", why, err)
		}
		if logfile.IsLayer(into) {
			t.Errorf("%s: there is a layer", why)
		}
	}
	uncached("parts of one file", 0, 2)
	uncached("parts of one file", 1, 3)
	l.up()
	l.check("not merged")
	l.write(l.mount+"/file", "1")
	l.freeze()
	l.write(l.mount+"/file", "2")
	l.freeze()
	l.down()
	l.must(os.Mkdir(l.layers[3]+"/found", 0o700))
	uncached("something put aside", 3, 5)
	l.must(os.Remove(l.layers[3] + "/found"))
	l.merge(3, 5)
	l.up()
	l.check("merged above it")
	l.has(l.mount+"/file", "2")
	l.down()
}

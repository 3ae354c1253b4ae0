//go:build linux

package layer_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

func (b *bench) options() layer.Options {
	return layer.Options{Lower: b.lower, Layers: b.layers, Indexes: b.indexes}
}

// tree mounts the layers and describes the whole tree.
func (b *bench) tree() string {
	b.Helper()
	var text strings.Builder
	b.up()
	b.at(func(root *os.File) { b.must(treetest.WriteManifest(&text, root, treetest.Options{})) })
	b.down()
	return text.String()
}

// TestLogStaysShort whatever is done to a few files: each change is a frame, as if each were synced.
func TestLogStaysShort(t *testing.T) {
	rounds := treetest.Budget(t, 10_000, 40_000) // of five frames
	b := newBench(t)
	for _, name := range []string{"a", "b", "gone"} {
		b.write(b.lower+"/"+name, name)
	}
	b.up()
	b.write(b.mount+"/first", "of the first layer")
	b.write(b.mount+"/removed", "of the first layer")
	b.must(os.Remove(b.mount + "/gone"))
	b.freeze()
	b.write(b.mount+"/second", "of the second layer")
	b.down()
	f, err := layer.Open(b.options())
	b.must(err)
	node := func(name string) uint64 {
		t.Helper()
		e, err := f.Lookup(layer.RootID, name)
		b.must(err)
		return e.ID
	}
	a, first, longest := node("a"), node("first"), int64(0)
	b.must(f.Remove(layer.RootID, "removed", false))
	for i := range rounds {
		temporary := fmt.Sprintf("temporary-%d", i)
		made, err := f.Make(layer.RootID, layer.New{Name: temporary, Mode: unix.S_IFREG | 0o600})
		b.must(errors.Join(err, f.Commit(false)))
		_, err = f.SetAttr(a, &layer.Change{Set: layer.SetMode, Mode: uint32(0o600 + i%2)})
		b.must(errors.Join(err, f.Commit(false)))
		_, err = f.SetAttr(first, &layer.Change{Set: layer.SetMode, Mode: uint32(0o600 + i%2)})
		b.must(errors.Join(err, f.Commit(false)))
		from, to := "second", "third"
		if i%2 == 1 {
			from, to = to, from
		}
		b.must(errors.Join(f.Rename(layer.RootID, from, layer.RootID, to, 0), f.Commit(false)))
		b.must(f.Remove(layer.RootID, temporary, false))
		f.Forget(made.ID, 1)
		b.must(f.Commit(false))
		if i%1000 == 0 {
			st, err := os.Stat(b.layers[1] + "/log")
			b.must(err)
			longest = max(longest, st.Size())
		}
	}
	top := f.TopUsage()
	b.must(f.Close())
	if longest < 200<<10 || longest > 1100<<10 {
		t.Errorf("the log was %d bytes long", longest)
	}
	if again, err := quota.OfLayer(b.layers[1], 1); err != nil || again.Inodes != top.Inodes || again.Inodes != 4 {
		t.Errorf("it tells of %d nodes, %v; counted are %d, there are 4: the root, a, first and second", again.Inodes, err, top.Inodes)
	}
	b.counted()
	for _, p := range b.check(false) {
		t.Error(p)
	}
	b.up()
	if got := b.list(b.mount); got != "a b first second" {
		t.Errorf("there are %q", got)
	}
	b.has(b.mount+"/second", "of the second layer")
	for _, name := range []string{"a", "first"} {
		if st, err := os.Stat(b.mount + "/" + name); err != nil || st.Mode().Perm() != 0o601 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	b.down()
}

// TestOpenCompactsALongLog, for example of an earlier version.
func TestOpenCompactsALongLog(t *testing.T) {
	b := newBench(t)
	b.up()
	b.write(b.mount+"/file", "content")
	b.sync()
	b.down()
	log := b.log()
	at := b.frames(log)
	for len(log) < 2<<20 {
		log = append(log, log[at[0]:at[len(at)-1]]...)
	}
	b.setLog(log)
	want := b.tree()
	if n := len(b.log()); n > 1000 {
		t.Errorf("the log has %d bytes", n)
	}
	if got := b.tree(); got != want {
		t.Errorf("it was\n%s, and is\n%s", want, got)
	}
}

// rewritten returns two closed layers. The top log has many frames, and records that cancel some of the lower
// layer's.
func rewritten(t *testing.T) *bench {
	b := newBench(t)
	b.must(os.Mkdir(b.lower+"/dir", 0o755))
	for _, name := range []string{"a", "b", "dir/c"} {
		b.write(b.lower+"/"+name, "below")
	}
	b.up()
	b.must(errors.Join(os.Mkdir(b.mount+"/above", 0o755), os.Mkdir(b.mount+"/made", 0o755)))
	for _, name := range []string{"a", "new", "above/gone", "made/gone"} {
		b.write(b.mount+"/"+name, "first")
	}
	b.must(os.Rename(b.mount+"/b", b.mount+"/moved"))
	b.freeze()
	for range 3 {
		b.write(b.mount+"/b", "another")
		b.must(os.Remove(b.mount + "/b"))
		b.sync()
		b.must(os.Rename(b.mount+"/moved", b.mount+"/b"))
		b.must(os.Chmod(b.mount+"/a", 0o600))
		b.sync()
		b.must(os.Rename(b.mount+"/b", b.mount+"/moved"))
		b.write(b.mount+"/dir/c", "second")
		b.sync()
	}
	b.must(errors.Join(os.RemoveAll(b.mount+"/above"), os.Remove(b.mount+"/made/gone")))
	b.must(os.Link(b.mount+"/new", b.mount+"/dir/linked"))
	b.down()
	return b
}

// TestKilledCompactionLeavesOneWholeLog at each step.
func TestKilledCompactionLeavesOneWholeLog(t *testing.T) {
	b := rewritten(t)
	before, want := b.log(), b.tree()
	whole := len(before)
	tally, err := quota.OfLayer(b.layers[1], 1)
	b.must(err)
	b.setLog(before)
	b.must(layer.Rewrite(b.options()))
	after := b.log()
	if len(after) > whole*2/3 {
		t.Errorf("rewritten it has %d bytes, and had %d", len(after), whole)
	}
	next := b.layers[1] + "/log.new"
	for _, c := range []struct {
		name     string
		log, new []byte
	}{
		{"made", before, after[:0]},
		{"written in part", before, after[:len(after)/2]},
		{"written", before, after},
		{"renamed", after, nil},
	} {
		b.setLog(c.log)
		if c.new != nil {
			b.must(os.WriteFile(next, c.new, 0o600))
		}
		if got := b.tree(); got != want {
			t.Errorf("%s: it was\n%s, and is\n%s", c.name, want, got)
		}
		if _, err := os.Lstat(next); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: what was left of it is there: %v", c.name, err)
		}
		for _, p := range b.check(false) {
			t.Errorf("%s: %v", c.name, p)
		}
		b.counted()
		if u, err := quota.OfLayer(b.layers[1], 1); err != nil || u.Inodes != tally.Inodes {
			t.Errorf("%s: it holds %+v, %v; it held %+v", c.name, u, err, tally)
		}
	}
	if o, err := logfile.Originals(b.layers); err != nil || len(o) != 2 {
		t.Errorf("of the tree below are known %d files, %v; want a and dir/c", len(o), err)
	}
}

// TestCompactionOnAFullDiskChangesNothing simulates the full disk.
func TestCompactionOnAFullDiskChangesNothing(t *testing.T) {
	b := rewritten(t)
	b.must(os.Mkdir(b.layers[1]+"/log.new", 0o700)) // cannot be removed nor written
	b.write(b.layers[1]+"/log.new/x", "")
	before := b.log()
	if err := layer.Rewrite(b.options()); err == nil {
		t.Error("it is said to be rewritten")
	}
	if !slices.Equal(b.log()[:len(before)], before) {
		t.Error("the log has changed")
	}
	b.must(os.RemoveAll(b.layers[1] + "/log.new"))
	b.tree()
}

// TestCompactedLogHasOneOwner, by whichever name it was opened.
func TestCompactedLogHasOneOwner(t *testing.T) {
	dir := treetest.Dir(t)
	o := layer.Options{Lower: filepath.Join(dir, "lower"), Layers: []string{filepath.Join(dir, "layer")}}
	if err := os.Mkdir(o.Lower, 0o755); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var owners, got atomic.Int64
	for range 4 {
		all.Go(func() {
			for range 200 {
				if err := layer.Rewrite(o); err != nil && !errors.Is(err, unix.EBUSY) {
					t.Error(err)
				}
				_, release, err := logfile.TryLock(o.Layers[0])
				if errors.Is(err, unix.EBUSY) || errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if got.Add(1); owners.Add(1) > 1 {
					t.Error("two hold it")
				}
				if _, err := layer.Open(o); !errors.Is(err, unix.EBUSY) {
					t.Errorf("opening what is held gives %v", err)
				}
				owners.Add(-1)
				release()
			}
		})
	}
	all.Wait()
	if got.Load() == 0 {
		t.Error("nobody ever held it")
	}
}

// TestLogIsCompactedWhileMounted, under writes and a kill.
func TestLogIsCompactedWhileMounted(t *testing.T) {
	b := newBench(t)
	b.up()
	b.write(b.mount+"/file", "content")
	b.sync()
	b.down()
	log := b.log()
	at := b.frames(log)
	for frame := log[at[0]:at[len(at)-1]]; len(log)+len(frame) < 1<<20; {
		log = append(log, frame...)
	}
	b.setLog(log)
	b.up()
	for i := 0; len(b.log()) > 1<<19; i++ {
		if i == 100 {
			t.Fatalf("the log has %d bytes", len(b.log()))
		}
		b.write(fmt.Sprintf("%s/%d", b.mount, i), "before")
		b.sync()
	}
	b.write(b.mount+"/after", "after")
	b.sync()
	if err := b.open(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("opening what is mounted gives %v", err)
	}
	b.kill()
	for _, p := range b.check(false) {
		t.Error(p)
	}
	b.up()
	for name, text := range map[string]string{"file": "content", "0": "before", "after": "after"} {
		b.has(b.mount+"/"+name, text)
	}
	b.down()
	b.counted()
}

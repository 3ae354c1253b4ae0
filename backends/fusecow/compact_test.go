//go:build linux

package fusecow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A lineage is a fork with so many seals that its layers are worth merging.
type lineage struct {
	testing.TB
	place snapshot.Place
	powers
}

// powers are the optional interfaces that a lineage needs.
type powers interface {
	snapshot.Backend
	snapshot.Limiter
	snapshot.ChangeLister
	snapshot.OriginalStore
	snapshot.Checker
}

const seals = 24

// newLineage returns a fork f with snapshots s1 to s24, each with one more file and one changed file. All but
// s9 and s20 are removed. other is a fork of s9. With use the fork stays mounted and is seen through that
// mount.
func newLineage(t *testing.T, use func(l *lineage, dir string)) *lineage {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	l := &lineage{TB: t, place: snapshottest.OnDisk(t)}
	for _, name := range []string{"each", "once"} {
		l.write(l.place.Tree.Path+"/"+name, "below")
	}
	time.Sleep(20 * time.Millisecond) // older than the capture
	b, err := driver().Open(t.Context(), l.place)
	l.must(err)
	var ok bool
	if l.powers, ok = b.(powers); !ok {
		t.Fatal("it lacks powers")
	}
	_, err = l.Capture(t.Context(), l.place.Tree, "base")
	l.must(err)
	_, err = l.Fork(t.Context(), "base", "f")
	l.must(err)
	l.must(l.LimitFork(t.Context(), "f", snapshot.DiskLimit{Bytes: 64 << 20}))
	l.in("f", func(dir string) {
		for i := 1; i <= seals; i++ {
			if i == 3 {
				l.write(dir+"/once", "changed")
			}
			l.write(dir+"/each", fmt.Sprint(i))
			l.write(fmt.Sprintf("%s/%d", dir, i), "new")
			l.write(dir+"/passing", fmt.Sprintf("%0100000d", i))
			_, err = l.Seal(t.Context(), "f", snapshot.ID(fmt.Sprintf("s%d", i)), snapshot.InUse)
			l.must(err)
		}
		l.write(dir+"/each", "last")
		_, err := l.Fork(t.Context(), "s9", "other")
		l.must(err)
		for i := 1; i <= seals; i++ {
			if i != 9 && i != 20 {
				l.must(l.Remove(t.Context(), snapshot.ID(fmt.Sprintf("s%d", i))))
			}
		}
		use(l, dir)
	})
	return l
}

func (l *lineage) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lineage) write(path, text string) {
	l.Helper()
	l.must(os.WriteFile(path, []byte(text), 0o644))
}

// in mounts a fork and calls do.
func (l *lineage) in(fork snapshot.ForkID, do func(dir string)) {
	l.Helper()
	f, err := l.LookupFork(l.Context(), fork)
	l.must(err)
	l.seen(f.View, do)
}

func (l *lineage) seen(v snapshot.View, do func(dir string)) {
	l.Helper()
	fd, err := v.Served.Mount(l.Context(), false)
	l.must(err)
	root := os.NewFile(uintptr(fd), "root")
	defer root.Close()
	do(fmt.Sprintf("/proc/self/fd/%d/.", fd))
}

// sweep sweeps as if all replaced layers were older than the grace period.
func (l *lineage) sweep() {
	l.Helper()
	l.must(l.Sweep(l.Context()))
	if list, err := filepath.Glob(l.place.Dir + "/layers/*/superseded"); err != nil || len(list) > 0 && !l.Pending() {
		l.Errorf("of %d layers that wait nobody is told, %v", len(list), err)
	}
	l.aged()
	l.must(l.Sweep(l.Context()))
}

func (l *lineage) aged() {
	l.Helper()
	list, err := filepath.Glob(l.place.Dir + "/layers/*/superseded")
	l.must(err)
	for _, path := range list {
		l.must(os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)))
	}
}

// layers returns the number of all layers, and of a fork's.
func (l *lineage) layers(fork string) (all, own int) {
	l.Helper()
	list, err := os.ReadDir(l.place.Dir + "/layers")
	l.must(err)
	text, err := os.ReadFile(l.place.Dir + "/forks/" + fork)
	l.must(err)
	var r struct{ Layers []string }
	l.must(json.Unmarshal(text, &r))
	return len(list), len(r.Layers)
}

// isWhole checks everything that the lineage must show.
func (l *lineage) isWhole(when string) {
	l.Helper()
	check := func(what string, dir string, upTo int, each string) {
		l.Helper()
		want := map[string]string{"each": each, "once": "changed", "passing": fmt.Sprintf("%0100000d", upTo)}
		for i := 1; i <= upTo; i++ {
			want[fmt.Sprint(i)] = "new"
		}
		got := map[string]string{}
		list, err := os.ReadDir(dir)
		l.must(err)
		for _, e := range list {
			text, err := os.ReadFile(dir + "/" + e.Name())
			if err != nil {
				l.Errorf("%s: %s: %v", when, what, err)
			}
			got[e.Name()] = string(text)
		}
		if !maps.Equal(got, want) {
			l.Errorf("%s: %s has %v", when, what, slices.Sorted(maps.Keys(got)))
		}
	}
	l.in("f", func(dir string) { check("the fork", dir, seals, "last") })
	l.in("other", func(dir string) { check("the fork of s9", dir, 9, "9") })
	for id, n := range map[snapshot.ID]int{"s9": 9, "s20": 20} {
		s, err := l.Lookup(l.Context(), id)
		l.must(err)
		l.seen(s.View, func(dir string) { check(string(id), dir, n, fmt.Sprint(n)) })
	}
	kept := map[string]string{}
	for o, err := range l.Originals(l.Context(), "base", "f") {
		l.must(err)
		text, err := os.ReadFile(o.Content)
		l.must(err)
		kept[o.Path] = string(text)
	}
	if want := map[string]string{"each": "below", "once": "below"}; !maps.Equal(kept, want) {
		l.Errorf("%s: of the tree below is kept %q", when, kept)
	}
	for _, f := range []snapshot.ForkID{"f", "other"} {
		problems, err := l.Check(l.Context(), f, false)
		l.must(err)
		if len(problems) > 0 {
			l.Errorf("%s: %v", when, problems)
		}
	}
}

// used returns the usage in the fork's quota.
func (l *lineage) used() snapshot.Bytes {
	l.Helper()
	u, err := l.Gauge(l.Context(), "f")
	l.must(err)
	return u.Bytes
}

// TestSweepMergesLayersWithoutSnapshotsBetween while the fork is used, and frees their space.
func TestSweepMergesLayersWithoutSnapshotsBetween(t *testing.T) {
	l := newLineage(t, func(l *lineage, dir string) {
		open, err := os.Open(dir + "/passing")
		l.must(err)
		defer open.Close()
		before := l.used()
		l.sweep()
		all, own := l.layers("f")
		// Those of s9 and s20, four that are too few to merge, and the fork's own; layers that the server has
		// open stay.
		if own != 7 || all < 24 {
			l.Errorf("the fork has %d layers, and there are %d", own, all)
		}
		if now := l.used(); now > before*2/5 {
			l.Errorf("the fork held %d bytes, and holds %d", before, now)
		}
		now := l.used()
		l.must(l.LimitFork(l.Context(), "f", snapshot.DiskLimit{Bytes: 64 << 20, Share: "other"}))
		if moved := l.used(); moved != now {
			l.Errorf("the fork held %d bytes, and %d where it is counted elsewhere", now, moved)
		}
		if text, err := os.ReadFile(dir + "/each"); string(text) != "last" {
			l.Errorf("who works there reads %q, %v", text, err)
		}
		l.write(dir+"/24", "new")
		_, err = l.Seal(l.Context(), "f", "more", snapshot.InUse)
		l.must(err)
		l.write(dir+"/each", "last")
		l.must(l.Remove(l.Context(), "more"))
	})
	l.isWhole("merged")
	before := l.used()
	l.sweep()
	if all, own := l.layers("f"); own != 8 || all != 9 { // plus the other fork's
		t.Errorf("the fork has %d layers, and there are %d", own, all)
	}
	if now := l.used(); now != before {
		t.Errorf("the fork held %d bytes, and holds %d", before, now)
	}
	l.isWhole("swept")
}

// TestInterruptedMergeLosesNothing, and the next sweep completes the merge. In make test it is interrupted at the
// first step of each name.
func TestInterruptedMergeLosesNothing(t *testing.T) {
	var steps []string
	count := treetest.WithFaults(t.Context(), func(step string) error {
		steps = append(steps, step)
		return nil
	})
	l := newLineage(t, func(*lineage, string) {})
	l.must(l.Sweep(count))
	for _, step := range []string{"merge layers", "put the merged layer in its place", "name the merged layer"} {
		if !slices.Contains(steps, step) {
			t.Fatalf("%q is no step of it: %q", step, steps)
		}
	}
	whole := treetest.Long(t)
	for n, step := range steps {
		if !whole && slices.Index(steps, step) < n {
			continue
		}
		l := newLineage(t, func(*lineage, string) {})
		broken := errors.New("broken")
		at := 0
		err := l.Sweep(treetest.WithFaults(t.Context(), func(string) error {
			if at++; at == n+1 {
				return broken
			}
			return nil
		}))
		if !errors.Is(err, broken) {
			t.Fatalf("%d, %s: %v", n, step, err)
		}
		l.isWhole(fmt.Sprintf("broken at %d, %s", n, step))
		swept := time.Now()
		l.sweep()
		l.isWhole(fmt.Sprintf("swept after it broke at %d, %s", n, step))
		// The server of a closed mount may still have a layer open, and so may a process that a parallel test is
		// starting: a later sweep removes it.
		var all, own int
		l.must(poll.Until(t.Context(), time.Millisecond, 100*time.Millisecond, func() (bool, error) {
			if all, own = l.layers("f"); own == 7 && all == 8 || time.Since(swept) > time.Minute {
				return true, nil
			}
			return false, l.Sweep(t.Context())
		}))
		if own != 7 || all != 8 {
			t.Errorf("%d, %s: the fork has %d layers, and there are %d", n, step, own, all)
		}
	}
}

// TestSweepDeletesDespiteUnmergeableLayers, above all on a full disk, where merging fails for lack of space.
func TestSweepDeletesDespiteUnmergeableLayers(t *testing.T) {
	l := newLineage(t, func(*lineage, string) {})
	l.must(l.RemoveFork(t.Context(), "other"))
	broken := errors.New("broken")
	err := l.Sweep(treetest.WithFaults(t.Context(), func(step string) error {
		if step == "merge layers" {
			return broken
		}
		return nil
	}))
	if !errors.Is(err, broken) {
		t.Errorf("it was not told: %v", err)
	}
	if left, err := os.ReadDir(l.place.Dir + "/trash"); err != nil || len(left) > 0 {
		t.Errorf("in the trash is %v, %v", left, err)
	}
}

// TestSweepSkipsKnownUnmergeableLayers until the layers change, and changes nothing.
func TestSweepSkipsKnownUnmergeableLayers(t *testing.T) {
	for why, part := range map[string]func(l *lineage, layer string){
		"as a repair leaves it":             func(l *lineage, layer string) { l.must(os.Mkdir(layer+"/found", 0o700)) },
		"as without hard links: link EPERM": (*lineage).unlinkable,
	} {
		t.Run(why, func(t *testing.T) {
			l := newLineage(t, func(*lineage, string) {})
			text, err := os.ReadFile(l.place.Dir + "/forks/f")
			l.must(err)
			var r struct{ Layers []string }
			l.must(json.Unmarshal(text, &r))
			for _, name := range r.Layers[:len(r.Layers)-1] {
				part(l, l.place.Dir+"/layers/"+name)
			}
			if n := l.tries(); n != 2 {
				t.Errorf("tried are %d chains, want 2", n)
			}
			if n := l.tries(); n != 0 {
				t.Errorf("again tried are %d chains", n)
			}
			l.isWhole("apart")
		})
	}
}

// tries sweeps, and returns how many chains it tried to merge.
func (l *lineage) tries() (n int) {
	l.Helper()
	l.must(l.Sweep(treetest.WithFaults(l.Context(), func(step string) error {
		if step == "merge layers" {
			n++
		}
		return nil
	})))
	return n
}

// unlinkable makes the kernel refuse hard links to the content of a layer, as on a filesystem without them.
func (l *lineage) unlinkable(layer string) {
	l.Helper()
	all, err := filepath.Glob(layer + "/data/*/*")
	l.must(err)
	for _, path := range all {
		f, err := os.Open(path)
		l.must(err)
		was, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		l.must(err)
		set := func(flags int) error { return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags) }
		l.must(set(was | 0x10 /* FS_IMMUTABLE_FL of linux/fs.h */))
		l.Cleanup(func() { l.must(errors.Join(set(was), f.Close())) })
	}
}

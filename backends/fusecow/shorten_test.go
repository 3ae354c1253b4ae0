//go:build linux

package fusecow_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// newLongLineage returns an idle fork f with the snapshots s1 to sN, which were taken in use. Each
// has one more file and one changed file.
func newLongLineage(t *testing.T, n int) *lineage {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	l := &lineage{TB: t, place: snapshottest.OnDisk(t)}
	l.write(l.place.Tree.Path+"/each", "below")
	l.open()
	_, err := l.Capture(t.Context(), l.place.Tree, "base")
	l.must(err)
	_, err = l.Fork(t.Context(), "base", "f")
	l.must(err)
	l.in("f", func(dir string) {
		for i := 1; i <= n; i++ {
			l.write(dir+"/each", fmt.Sprint(i))
			l.write(fmt.Sprintf("%s/%d", dir, i), "new")
			l.seal(t, i, snapshot.InUse)
		}
	})
	return l
}

func (l *lineage) open() {
	l.Helper()
	b, err := driver().Open(l.Context(), l.place)
	l.must(err)
	var ok bool
	if l.powers, ok = b.(powers); !ok {
		l.Fatal("it lacks powers")
	}
}

func (l *lineage) seal(t testing.TB, i int, use snapshot.Use) {
	t.Helper()
	_, err := l.Seal(t.Context(), "f", snapshot.ID(fmt.Sprintf("s%d", i)), use)
	l.must(err)
}

// shows checks that the snapshot id, or the fork f if id is "", has the content of the snapshot number n.
func (l *lineage) shows(id snapshot.ID, n int, when string) {
	l.Helper()
	want, got := map[string]string{"each": fmt.Sprint(n)}, map[string]string{}
	for i := 1; i <= n; i++ {
		want[fmt.Sprint(i)] = "new"
	}
	check := func(dir string) {
		list, err := os.ReadDir(dir)
		l.must(err)
		for _, e := range list {
			text, err := os.ReadFile(dir + "/" + e.Name())
			l.must(err)
			got[e.Name()] = string(text)
		}
	}
	if id == "" {
		l.in("f", check)
	} else {
		s, err := l.Lookup(l.Context(), id)
		l.must(err)
		l.seen(s.View, check)
	}
	if !maps.Equal(got, want) {
		l.Errorf("%s: %q has %v, want the state number %d", when, id, got, n)
	}
}

// TestManySealsKeepTheLayersOfAForkFew, in use and idle, without the removal of any snapshot: the time to open a
// fork does not grow with its snapshots. Each snapshot keeps its state, and differs from the next as before.
func TestManySealsKeepTheLayersOfAForkFew(t *testing.T) {
	const used, all = 40, 80
	l := newLongLineage(t, used)
	for i := used + 1; i <= all; i++ {
		l.seal(t, i, snapshot.Idle)
	}
	if _, n := l.layers("f"); n > 16 {
		t.Errorf("after %d seals the fork has %d layers", all, n)
	}
	for i := 1; i < used; i++ {
		x, y := snapshot.ID(fmt.Sprintf("s%d", i)), snapshot.ID(fmt.Sprintf("s%d", i+1))
		n := 0
		for _, err := range l.ListChangesBetween(t.Context(), x, y) {
			l.must(err)
			n++
		}
		if n < 2 || n > 8 {
			t.Errorf("between %s and %s are %d candidates, want those of two files", x, y, n)
		}
	}
	for id, n := range map[snapshot.ID]int{"s1": 1, "s31": 31, "s32": 32, "s33": 33, "s40": 40, "s80": 40, "": 40} {
		l.shows(id, n, "sealed often")
	}
	for i := 1; i < all; i++ {
		l.must(l.Remove(t.Context(), snapshot.ID(fmt.Sprintf("s%d", i))))
	}
	l.aged()
	var stored, n int
	began := time.Now()
	l.must(poll.Until(t.Context(), time.Millisecond, 100*time.Millisecond, func() (bool, error) { // a server that is about to end has layers open
		if stored, n = l.layers("f"); stored == n || time.Since(began) > time.Minute {
			return true, nil
		}
		return false, l.Sweep(t.Context())
	}))
	if stored != n {
		t.Errorf("the fork has %d layers, and %d are stored", n, stored)
	}
	l.shows("s80", 40, "swept")
	l.shows("", 40, "swept")
}

// TestAKilledShorteningLosesNothing: a copy of the backend's data, made at each step of a Seal that merges the
// fork's layers, has the state as before, also after a sweep and a further Seal.
func TestAKilledShorteningLosesNothing(t *testing.T) {
	l := newLongLineage(t, 15)
	l.seal(t, 16, snapshot.Idle) // the server of the fork has ended
	var copies, steps []string
	_, err := l.Seal(treetest.WithFaults(t.Context(), func(step string) error {
		to := filepath.Join(t.TempDir(), "copy")
		steps, copies = append(steps, step), append(copies, to)
		_, err := run.Output(t.Context(), "cp", "-a", l.place.Dir, to)
		return err
	}), "f", "next", snapshot.Idle)
	l.must(err)
	if _, n := l.layers("f"); n > 4 {
		t.Fatalf("the fork has %d layers after the steps %q", n, steps)
	}
	l.shows("next", 15, "sealed")
	for i, to := range copies {
		killed := &lineage{TB: t, place: l.place}
		killed.place.Dir = to
		killed.open()
		when := "killed before " + steps[i]
		killed.shows("", 15, when)
		killed.shows("s14", 14, when)
		killed.aged()
		l.must(killed.Sweep(t.Context()))
		killed.seal(t, 17, snapshot.Idle)
		killed.shows("s17", 15, when+", and sealed again")
		if _, n := killed.layers("f"); n > 4 {
			t.Errorf("%s: the fork has %d layers", when, n)
		}
	}
}

// TestAFailedShorteningLeavesTheFork with its layers, and the next seal merges them.
func TestAFailedShorteningLeavesTheFork(t *testing.T) {
	l := newLongLineage(t, 16)
	broken := errors.New("broken")
	for i, at := range []string{"merge the fork's layers", "put the fork's merged layer in its place", "name the fork's merged layer"} {
		failed := false
		_, err := l.Seal(treetest.WithFaults(t.Context(), func(step string) error {
			if step == at {
				failed = true
				return broken
			}
			return nil
		}), "f", snapshot.ID(fmt.Sprintf("s%d", 17+i)), snapshot.Idle)
		if err != nil || !failed {
			t.Fatalf("%s, failed %v: %v", at, failed, err)
		}
		if _, n := l.layers("f"); n < 16 {
			t.Errorf("%s: the fork has %d layers", at, n)
		}
		l.shows("", 16, at)
	}
	l.seal(t, 20, snapshot.Idle)
	l.shows("s20", 16, "sealed after failures")
	if _, n := l.layers("f"); n > 4 {
		t.Errorf("the fork has %d layers", n)
	}
}

// TestLayersThatCannotBeMergedAreSealedAllTheSame, and a seal does not try to merge them each time.
func TestLayersThatCannotBeMergedAreSealedAllTheSame(t *testing.T) {
	l := newLongLineage(t, 16)
	first, err := filepath.Glob(l.place.Dir + "/layers/*/log")
	l.must(err)
	for _, log := range first {
		l.must(os.MkdirAll(filepath.Dir(log)+"/found", 0o700)) // as after a repair
	}
	tries := 0
	for i := 17; i <= 26; i++ {
		_, err := l.Seal(treetest.WithFaults(t.Context(), func(step string) error {
			if step == "merge the fork's layers" {
				tries++
			}
			return nil
		}), "f", snapshot.ID(fmt.Sprintf("s%d", i)), snapshot.Idle)
		l.must(err)
	}
	if tries != 2 { // with 16 layers, and again with 24
		t.Errorf("10 seals have tried %d times to merge", tries)
	}
	l.shows("s26", 16, "not merged")
}

// TestAForkWithADiskLimitKeepsItsLayers: the limit counts what its snapshots have, and a merged layer would not count
// for it.
func TestAForkWithADiskLimitKeepsItsLayers(t *testing.T) {
	l := newLongLineage(t, 12)
	l.must(l.LimitFork(t.Context(), "f", snapshot.DiskLimit{Bytes: 64 << 20}))
	held := l.used()
	for i := 13; i <= 20; i++ {
		l.seal(t, i, snapshot.Idle)
	}
	if _, n := l.layers("f"); n < 20 {
		t.Errorf("the fork has %d layers", n)
	}
	if now := l.used(); now < held {
		t.Errorf("it held %d bytes, and now %d", held, now)
	}
	l.shows("s20", 12, "limited")
}

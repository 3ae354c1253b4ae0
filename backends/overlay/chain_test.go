//go:build linux

package overlay_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

// powers are the optional powers under test.
type powers interface {
	snapshot.Backend
	snapshot.ChangeLister
	snapshot.Syncer
	snapshot.SubtreeViewer
	snapshot.Detacher
	snapshot.SealComparer
}

// A fixture is a backend on an empty tree.
type fixture struct {
	testing.TB
	powers
	place snapshot.Place
}

func newFixture(t testing.TB, place snapshot.Place) *fixture {
	t.Helper()
	b, err := overlay.Open(t.Context(), place)
	must(t, err)
	all, ok := b.(powers)
	if !ok {
		t.Fatal("the backend lacks an optional power")
	}
	return &fixture{t, all, place}
}

func (s *fixture) capture(id snapshot.ID) {
	s.Helper()
	_, err := s.Capture(s.Context(), s.place.Tree, id)
	must(s, err)
}

func (s *fixture) fork(from snapshot.ID, id snapshot.ForkID) snapshot.View {
	s.Helper()
	f, err := s.Fork(s.Context(), from, id)
	must(s, err)
	return f.View
}

func (s *fixture) seal(fork snapshot.ForkID, id snapshot.ID, use snapshot.Use) {
	s.Helper()
	_, err := s.Seal(s.Context(), fork, id, use)
	must(s, err)
}

func (s *fixture) sweep() {
	s.Helper()
	must(s, s.Sweep(s.Context()))
}

// in calls do with the mounted root of a fork.
func (s *fixture) in(id snapshot.ForkID, do func(root *os.File)) {
	s.Helper()
	f, err := s.LookupFork(s.Context(), id)
	must(s, err)
	root := reach(s, f.View)
	defer root.Close()
	do(root)
}

func (s *fixture) manifest(v snapshot.View) string {
	s.Helper()
	root := reach(s, v)
	defer root.Close()
	return treetest.Manifest(s, "/proc/self/fd/"+strconv.Itoa(int(root.Fd()))+"/.", treetest.Options{})
}

func (s *fixture) snap(id snapshot.ID) snapshot.View {
	s.Helper()
	snap, err := s.Lookup(s.Context(), id)
	must(s, err)
	return snap.View
}

func (s *fixture) same(want, got, what string) {
	s.Helper()
	for i, line := range treetest.Lines(want, got) {
		if i == 5 {
			return
		}
		s.Errorf("%s: %s", what, line)
	}
}

// sealOften executes a random script before each of floors seals. Each third seal is of a fork in
// use, which copies the layer; the next fork is then made from that copy.
func (s *fixture) sealOften(w *treetest.Writer, floors int) (last snapshot.ID) {
	s.Helper()
	play := func(script treetest.Script, root *os.File) { s.Helper(); must(s, script.Play(root)) }
	tree, err := os.Open(s.place.Tree.Path)
	must(s, err)
	defer tree.Close()
	play(w.Script(120), tree)
	s.capture("base")
	fork := snapshot.ForkID("work")
	s.fork("base", fork)
	for i := range floors {
		w.Freeze()
		s.in(fork, func(root *os.File) { play(w.Script(15), root) })
		last = snapshot.ID("s" + strconv.Itoa(i))
		if i%3 != 0 {
			s.seal(fork, last, snapshot.Idle)
			continue
		}
		s.seal(fork, last, snapshot.InUse)
		fork = snapshot.ForkID("work" + strconv.Itoa(i))
		s.fork(last, fork)
	}
	return last
}

func TestMergedLayersEqualTheirChain(t *testing.T) {
	treetest.NeedRoot(t)
	merges(t, treetest.Powers{Root: true, ShortRenames: true, KeepOldLinks: true})
}

func TestMergedLayersOfAnOrdinaryUserEqualTheirChain(t *testing.T) {
	if treetest.AsUser(t) && treetest.InNamespace(t) {
		merges(t, treetest.Powers{NoDirRename: true, ShortRenames: true, KeepOldLinks: true})
	}
}

func merges(t *testing.T, scripts treetest.Powers) {
	const floors = 20 // more layers than a chain may have before it is merged
	for seed := range uint64(treetest.Budget(t, 2, 6)) {
		s := newFixture(t, snapshottest.OnDisk(t))
		w := treetest.NewWriter(seed, scripts)
		last := s.sealOften(w, floors)
		want := s.manifest(s.snap(last))
		if n := len(s.snap(last).Overlay.Lower); n != floors+1 {
			t.Fatalf("the chain has %d layers after %d seals", n-1, floors)
		}
		s.removeAllBut(last) // otherwise the sweep merges a shorter chain, below the other layers
		s.sweep()
		v := s.fork(last, "merged")
		if n := len(v.Overlay.Lower); n != 2 {
			t.Errorf("seed %d: after a sweep there are %d layers, want 1 and the tree", seed, n-1)
		}
		s.same(want, s.manifest(v), fmt.Sprintf("seed %d, the merged chain", seed))
		s.same(want, s.manifest(s.snap(last)), fmt.Sprintf("seed %d, the chain itself", seed))
		s.canGrow(w, want)
		if t.Failed() {
			return
		}
	}
}

// canGrow checks that merged layers can have further layers on top, and outlive the layers that
// they replace.
func (s *fixture) canGrow(w *treetest.Writer, want string) {
	s.Helper()
	w.Freeze()
	s.in("merged", func(root *os.File) { must(s, w.Script(40).Play(root)) })
	f, err := s.LookupFork(s.Context(), "merged")
	must(s, err)
	now := s.manifest(f.View)
	if now == want {
		s.Error("the script changed nothing")
	}
	s.seal("merged", "end", snapshot.Idle)
	s.removeAllBut("end")
	s.sweep()
	s.same(now, s.manifest(s.snap("end")), "what is left")
	layers, err := os.ReadDir(filepath.Join(s.place.Dir, "layers"))
	must(s, err)
	if len(layers) != 2 {
		s.Errorf("%d layers are left, want the merged one and the last", len(layers))
	}
}

func (s *fixture) removeAllBut(last snapshot.ID) {
	s.Helper()
	ids, forks, err := s.List(s.Context())
	must(s, err)
	for _, id := range ids {
		if id != last {
			must(s, s.Remove(s.Context(), id))
		}
	}
	for _, id := range forks {
		must(s, s.RemoveFork(s.Context(), id))
	}
}

// Without a sweep, Seal itself merges chains, long before the kernel's limit of 500.
// make test seals three hundred times, which is several times as often as a chain may have layers.
func TestAThousandSealsWithoutASweepKeepChainsShort(t *testing.T) {
	treetest.NeedRoot(t)
	s := newFixture(t, snapshottest.OnDisk(t))
	must(t, os.WriteFile(s.place.Tree.Path+"/file", []byte("base"), 0o644))
	s.capture("base")
	s.fork("base", "work")
	longest := 0
	seals := treetest.Budget(t, 300, 1000)
	for i := range seals {
		f, err := s.LookupFork(t.Context(), "work")
		must(t, err)
		must(t, os.WriteFile(filepath.Join(f.View.Overlay.Upper, "n"+strconv.Itoa(i%50)), []byte(strconv.Itoa(i)), 0o644))
		s.seal("work", snapshot.ID("s"+strconv.Itoa(i)), snapshot.Idle)
		longest = max(longest, len(s.snap(snapshot.ID("s"+strconv.Itoa(i))).Overlay.Lower))
	}
	if longest > 100 {
		t.Errorf("a chain has %d layers", longest)
	}
	s.in("work", func(root *os.File) {
		text, err := os.ReadFile("/proc/self/fd/" + strconv.Itoa(int(root.Fd())) + "/n49")
		if must(t, err); string(text) != strconv.Itoa(seals-1) {
			t.Errorf("the last state is lost: %q", text)
		}
	})
}

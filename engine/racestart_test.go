package engine_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/workflow/race"
)

// TestEightAttemptsShareTheCapturesOfOne: how long eight take to make, beside
// one, is judged where nothing else runs, by the gate of bench.
func TestEightAttemptsShareTheCapturesOfOne(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		for _, n := range []int{1, 8} {
			b.write("f", string(rune('0'+n))) // so that no older snapshot will do
			trees, bases := 0, map[snapshot.ID]bool{}
			req := b.tries(slices.Repeat([]string{"true"}, n)...)
			req.Progress = func(race.Attempt) {
				if len(bases) == 0 {
					trees, bases = b.basesNow(n)
				}
			}
			r := b.race(req)
			if trees == 0 || len(bases) != trees {
				t.Errorf("%d attempts of %d trees have the bases %q", n, trees, slices.Collect(maps.Keys(bases)))
			}
			b.over(r)
		}
	})
}

// basesNow is how many trees each of n sandboxes has, and all their bases.
func (b *bench) basesNow(n int) (trees int, bases map[snapshot.ID]bool) {
	b.t.Helper()
	cat, err := catalog.Open(b.state)
	if err != nil {
		b.t.Fatal(err)
	}
	records, errs := cat.List()
	if len(errs) > 0 || len(records) != n {
		b.t.Errorf("%d sandboxes of %d attempts: %v", len(records), n, errs)
	}
	bases = map[snapshot.ID]bool{}
	for _, r := range records {
		trees = len(r.Trees)
		for id := range r.Bases() {
			bases[id] = true
		}
	}
	return trees, bases
}

// A person edits the workspace after the attempts have ended, within their first second, and before one of them is
// promoted: a file that the attempt made beside the person's is no conflict, nor are two lines of one text. Cost: 0.3 s.
func TestAPersonsEditAfterAShortRaceIsNoConflict(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.write("long", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
		tick()
		r := b.race(b.tries("echo made > made; sed -i s/2/two/ long"))
		b.write("person", "mine\n")
		b.write("long", "1\n2\n3\n4\n5\n6\n7\neight\n9\n")
		if _, err := r.Promote(t.Context(), 1); err != nil {
			t.Error(err)
		}
		if made, long := b.text(filepath.Join(b.workspace, "made")), b.read("long"); made != "made\n" || long != "1\ntwo\n3\n4\n5\n6\n7\neight\n9\n" {
			t.Errorf("the real files hold %q and %q", made, long)
		}
		b.over(r)
	})
}

//go:build linux

package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// Where the list of originals is missing or damaged, a file that the user changed before the sandbox's last
// start is not taken for the original: a promotion would overwrite it.
func TestAMissingListOfOriginalsCostsNoEdit(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.write("text", "one\nbase\nthree\n")
		tick()
		b.new("s")
		start := func(script string) {
			t.Helper()
			b.in("s", script)
			if err := b.Supervise.Stop(t.Context(), "s"); err != nil { // it stores originals when it ends
				t.Fatal(err)
			}
		}
		start("printf 'one\\nmine\\nthree\\n' > text")
		tick()
		b.write("text", "one\nreal\nthree\n")
		tick()
		start("echo more > other") // from now on the real tree has the originals of what follows
		if b.keptOf("s") == "" {
			t.Fatal("no originals are stored")
		}
		dir := filepath.Join(b.state, "sandboxes", "s", "bases", "0")
		conflicts := func(when string) {
			t.Helper()
			plan, err := b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{Only: []string{"text"}})
			if err != nil || len(plan.Steps) > 0 || len(plan.Conflicts) != 1 {
				t.Errorf("%s: %+v, %v: want one conflict", when, plan, err)
			}
		}
		conflicts("before")
		kept, err := os.ReadFile(filepath.Join(dir, "kept"))
		if err != nil {
			t.Fatal(err)
		}
		flipped := slices.Clone(kept)
		flipped[len("snapfs kept 3\n\"/")] ^= 1 // of the path of the first entry
		if err := os.WriteFile(filepath.Join(dir, "kept"), flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})
		if !errors.Is(err, errs.ErrCorrupt) || !slices.Contains(errs.HintsOf(err), "snapfs doctor s --repair") {
			t.Errorf("of a damaged list: %v, hints %q", err, errs.HintsOf(err))
		}
		check := func(repair bool) (found []snapshot.Problem, err error) {
			trees, err := b.Check(t.Context(), "s", repair)
			for _, tree := range trees {
				found = append(found, tree.Problems...)
			}
			return found, err
		}
		for _, repair := range []bool{false, true} {
			problems, err := check(repair)
			if err != nil || len(problems) != 1 || problems[0].Where != filepath.Join(dir, "kept") || problems[0].Mended != repair {
				t.Errorf("a check that repairs: %t finds %+v, %v", repair, problems, err)
			}
		}
		conflicts("after a repair")
		if problems, err := check(false); err != nil || len(problems) > 0 {
			t.Errorf("after a repair it finds %+v, %v", problems, err)
		}
		start("echo again > other")
		conflicts("after the next start")
		if err := os.Remove(filepath.Join(dir, "kept")); err != nil {
			t.Fatal(err)
		}
		if problems, err := check(false); err != nil || len(problems) != 1 {
			t.Errorf("without the list it finds %+v, %v", problems, err)
		}
		conflicts("without the list") // which makes another
		start("echo once more > other")
		conflicts("at the end")
		if got := b.read("text"); got != "one\nreal\nthree\n" {
			t.Errorf("the real file has %q", got)
		}
	})
}

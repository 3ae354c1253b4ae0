package merge_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
)

// An answer for one end of a move takes both ends, whether or not the merge could read the base.
func TestNoHalfOfAMoveIsTaken(t *testing.T) {
	long := strings.Repeat("a line that tells where it is from\n", 9)
	base := "a\n" + long + ";d/f\n" + long + "f\n;d/g\n" + long + "g\n"
	for _, c := range []struct{ name, mine, real, at, theirs, minePaths string }{
		{"to an added path", "b from=a", "b\nr\n", "b", "a b d d/f d/g", "b d d/f d/g"},
		{"moved and edited", "b from=a\n" + long + "m\n", "b\nr\n", "b", "a b d d/f d/g", "b d d/f d/g"},
		{"from a changed path", "b from=a", "a\nr\n", "a", "a d d/f d/g", "b d d/f d/g"},
		{"a directory", "e from=d", "e/f\nr\n", "e/f", "a d d/f e e/f e/g", "a e e/f e/g"},
	} {
		for _, kind := range []string{"frozen", "live", "unknown", "promoted"} {
			for _, choice := range []merge.Choice{merge.Theirs, merge.Mine} {
				t.Run(c.name+"/"+kind+map[merge.Choice]string{merge.Mine: "/mine", merge.Theirs: "/theirs"}[choice], func(t *testing.T) {
					w := trees(t, base, c.mine, c.real)
					in := w.input()
					switch {
					case kind == "frozen" && c.at == "a", (kind == "frozen" || kind == "unknown") && c.at == "e/f":
						return // the merge itself moves the change, or has one conflict of the directories
					case kind == "promoted" && c.at == "a":
						return // no tree has the original, and the conflict is at the old path itself
					}
					if kind != "frozen" {
						in.OldTree, in.BaseTree = in.BaseTree, nil
					}
					if kind == "promoted" { // the base is not the tree with which the sandbox was compared
						in.OldTree = trees(t, "", "", "").input().BaseTree
					}
					if kind == "unknown" {
						live(&in, map[string]string{c.at: ""})
						for i, x := range in.Mine {
							if x.Path == c.at && x.Kind == diff.Added {
								in.Mine[i].Kind, in.Mine[i].What, in.Mine[i].Old = diff.Modified, diff.Content, x.New
							}
						}
					}
					asked := 0
					in.Choose = func(k merge.Conflict) merge.Choice {
						asked++
						if !slices.Contains(k.Paths(), c.at) {
							t.Errorf("conflict at %v", k.Paths())
						}
						return choice
					}
					r := w.trees(in)
					if asked == 0 || len(r.Conflicts) > 0 {
						t.Errorf("asked %d times, left:\n%s", asked, conflictLines(r.Conflicts))
					}
					w.apply(in, r)
					var have []string
					for line := range strings.Lines(list(t, w.target)) {
						have = append(have, strings.TrimSuffix(strings.Fields(line)[0], "/"))
					}
					want := map[merge.Choice]string{merge.Mine: c.minePaths, merge.Theirs: c.theirs}[choice]
					if got := strings.Join(have, " "); got != want {
						t.Errorf("%s, want %s", got, want)
					}
				})
			}
		}
	}
}

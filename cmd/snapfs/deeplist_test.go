package main

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/reconcile"
)

// A deep nest of directories does not flood a pipe: what lies too deep shares a line, the list says
// so and how to see all of it. Many short paths are all printed.
func TestAListOfADeepNestIsBounded(t *testing.T) {
	added := func(path string) diff.Change {
		return diff.Change{Path: path, Kind: diff.Added, New: &diff.Node{Mode: fs.ModeDir | 0o755}}
	}
	print := func(changes []diff.Change) (list string) {
		t.Helper()
		var out bytes.Buffer
		if err := printTable(&out, &compare.Changes{Parts: []compare.Part{{Root: "/w", Workspace: true, Changes: changes}}}, 0, "all of it"); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	var deep, wide []diff.Change
	name := strings.Repeat("n", 100)
	for i := range 1000 {
		deep = append(deep, added(strings.Repeat(name+"/", i)+name))
		wide = append(wide, added(strings.Repeat("w", i%200+1)))
	}
	got := print(deep)
	if len(got) > 1<<20 || !strings.Contains(got, "… 1000 paths, of which some share a line (all: --json)") || !strings.Contains(got, "1000 added") {
		t.Errorf("%d bytes, at the end %q", len(got), got[max(0, len(got)-200):])
	}
	if got := print(wide); strings.Count(got, "\n") != 1001 {
		t.Errorf("%d lines", strings.Count(got, "\n"))
	}
}

// A plan of a deep nest is as bounded as the list of its changes, one long path does not pad the lines
// of all others, and a terminal gets a bounded number of lines, each time with a word on the rest.
func TestAPlanOfADeepNestIsBounded(t *testing.T) {
	print := func(p *reconcile.Plan, most int) string {
		t.Helper()
		p.Target = "/w"
		var out bytes.Buffer
		if err := printPlan(&out, p, most); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	step := func(path string) reconcile.Step {
		return reconcile.Step{Path: "/w/" + path, Do: "add", Result: &reconcile.State{Type: "directory"}}
	}
	name := strings.Repeat("n", 100)
	var deep, wide, conflicts reconcile.Plan
	for i := range 1000 {
		path := strings.Repeat(name+"/", i) + name
		deep.Steps = append(deep.Steps, step(path))
		conflicts.Conflicts = append(conflicts.Conflicts, reconcile.Conflict{Path: "/w/" + path, Why: "see /w/" + path})
		wide.Steps = append(wide.Steps, step(strings.Repeat("w", i%50+1)))
	}
	got := print(&deep, 0)
	if len(got) > 1<<20 || !strings.Contains(got, "… 1000 paths, of which some share a line (all: --json)\n1000 steps on /w") {
		t.Errorf("%d bytes, at the end %q", len(got), got[max(0, len(got)-200):])
	}
	got = print(&conflicts, 0)
	if len(got) > 1<<20 || !strings.Contains(got, "… 1000 paths, of which some share a line (all: --json)\n0 steps, 1000 conflicts on /w") {
		t.Errorf("conflicts: %d bytes, at the end %q", len(got), got[max(0, len(got)-200):])
	}
	if got = print(&wide, 0); strings.Count(got, "\n") != 1001 || strings.Contains(got, "…") {
		t.Errorf("%d lines", strings.Count(got, "\n"))
	}
	if got = print(&wide, 200); strings.Count(got, "\n") != 202 || !strings.Contains(got, "\n… and 800 more lines (snapfs plan … | cat)\n1000 steps on /w") {
		t.Errorf("a terminal gets %d lines", strings.Count(got, "\n"))
	}
	wide.Steps = append(wide.Steps, step(strings.Repeat(name+"/", 40)+name))
	if got = print(&wide, 0); len(got) > 200<<10 {
		t.Errorf("a long path pads the others to %d bytes", len(got))
	}
}

package main

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
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

package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
)

func TestFoldCountsEveryPath(t *testing.T) {
	t.Parallel()
	file := &diff.Node{Mode: 0o644, Size: 1}
	dir := &diff.Node{Mode: 0o755 | 1<<31}
	var changes []diff.Change
	add := func(path string, kind diff.Kind, n *diff.Node) {
		c := diff.Change{Path: path, Kind: kind}
		if kind != diff.Added {
			c.Old = n
		}
		if kind != diff.Deleted {
			c.New = n
		}
		changes = append(changes, c)
	}
	add("Makefile", diff.Modified, file)
	add("empty", diff.Added, dir)
	add("mod", diff.Deleted, dir)
	for i := range 5 {
		add(fmt.Sprintf("mod/%d", i), diff.Deleted, file)
	}
	add("src/a/x/1", diff.Modified, file)
	add("src/a/x/2", diff.Added, file)
	add("src/a/y", diff.Modified, file)
	add("src/b", diff.Modified, file)
	rows := Rows(changes, nil)
	for most, want := range map[int]string{
		20: "M Makefile, A empty, D mod, D mod/0, D mod/1, D mod/2, D mod/3, D mod/4, M src/a/x/1, A src/a/x/2, M src/a/y, M src/b",
		7:  "M Makefile, A empty, D mod/ (6 paths), M src/a/x/1, A src/a/x/2, M src/a/y, M src/b",
		6:  "M Makefile, A empty, D mod/ (6 paths), M src/a/x/ (2 paths), M src/a/y, M src/b",
		5:  "M Makefile, A empty, D mod/ (6 paths), M src/a/ (3 paths), M src/b",
		2:  "M Makefile, A empty, D mod/ (6 paths), M src/ (4 paths)",
	} {
		var got []string
		for _, r := range Fold(append([]Row{}, rows...), most) {
			text := r.Kind.Letter() + " " + r.Path
			if r.paths > 0 {
				text += " (" + r.what + ")"
			}
			got = append(got, text)
		}
		if all := strings.Join(got, ", "); all != want {
			t.Errorf("at most %d:\n got %s\nwant %s", most, all, want)
		}
	}
}

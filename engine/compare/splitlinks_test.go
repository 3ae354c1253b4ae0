package compare

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
)

// The change that adds a renamed directory may stand for other names of a changed file, which are changed, too.
func TestNamesInARenamedDirectoryAreNotCalledUnchanged(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "big/sub"), 0o755), os.Mkdir(filepath.Join(dir, "other"), 0o755), os.WriteFile(filepath.Join(dir, "out"), nil, 0o644),
		os.Link(filepath.Join(dir, "out"), filepath.Join(dir, "big/sub/f"))); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	split := func(moved *diff.Moved) []SplitLink {
		t.Helper()
		node := func(path string) *diff.Node {
			st, err := vfs.Lstat(int(root.Fd()), path)
			if err != nil {
				t.Fatal(err)
			}
			return diff.NodeOf(&st)
		}
		changes := []diff.Change{
			{Path: "big", Kind: diff.Deleted, Old: node("big")},
			{Path: "large", Kind: diff.Added, New: node("big"), Moved: moved},
			{Path: "out", Kind: diff.Modified, What: diff.Content, Old: node("out"), New: node("out")},
		}
		all, err := FindSplitLinks(t.Context(), root, dir, changes, func(c *diff.Change) *diff.Node { return c.Old })
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	whole := &diff.Moved{From: "big", Entries: 2}
	if all := split(whole); len(all) != 0 {
		t.Errorf("the other name has moved with its directory: %+v", all)
	}
	if all := split(nil); len(all) != 1 || !slices.Equal(all[0].Others, []string{filepath.Join(dir, "big/sub/f")}) {
		t.Errorf("the other name is unchanged: %+v", all)
	}
	if err := os.Link(filepath.Join(dir, "out"), filepath.Join(dir, "other/f")); err != nil {
		t.Fatal(err)
	}
	if all := split(whole); len(all) != 1 || !slices.Equal(all[0].Others, []string{filepath.Join(dir, "other/f")}) || all[0].Missing != 0 {
		t.Errorf("one other name has moved, one is unchanged: %+v", all)
	}
}

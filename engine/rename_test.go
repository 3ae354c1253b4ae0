package engine_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A disk of the state directory that is full is found when the directory has its new name: the sandbox has its old one
// again, so that an error means that nothing was renamed.
func TestARenameThatCannotBeRecordedIsTakenBack(t *testing.T) {
	b := benchIn(t, treetest.Dir(t), treetest.Dir(t))
	treetest.Leaks(t, filepath.Dir(b.state))
	b.new("s")
	inTheWay := filepath.Join(b.state, "sandboxes", "s", "record.json.new")
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.Rename(t.Context(), "s", "to"); err == nil {
		t.Error("renamed")
	}
	if _, err := b.Catalog().Get("s"); err != nil {
		t.Error(err)
	}
	if b.Catalog().Claimed("to") {
		t.Error("the new name is taken")
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	if err := b.Rename(t.Context(), "s", "to"); err != nil {
		t.Fatal(err)
	}
	if err := b.Remove(t.Context(), "to"); err != nil {
		t.Error(err)
	}
}

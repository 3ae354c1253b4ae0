package commands

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestALostEditIsNoticed: an edit that goes is missing, one that moves to another file is not,
// one that was replaced on purpose is not looked for again, and a promotion that deletes a renamed
// file excuses those of its edits that the sandbox has, while it is played.
func TestALostEditIsNoticed(t *testing.T) {
	ws := &workspace{dir: treetest.Dir(t), must: map[string]string{}, free: map[string]bool{}, deleting: map[*sandbox][]string{}}
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(ws.dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want ...string) {
		t.Helper()
		if gone, err := ws.missing(); err != nil || !slices.Equal(gone, want) {
			t.Errorf("missing %q, %v; want %q", gone, err, want)
		}
	}
	write("f", "=0\np:1\ns:2\n")
	want()
	write("f", "=0\n")
	write("g", "s:2\n")
	lost := "p:1 of " + filepath.Join(ws.dir, "f")
	want(lost)
	if err := ws.excuse("s:"); err != nil {
		t.Fatal(err)
	}
	want(lost)
	if err := ws.excuse(""); err != nil {
		t.Fatal(err)
	}
	want()

	// The promotion of a deletion may delete what the sandbox has elsewhere, and no more.
	remove := func(name string) {
		if err := os.Remove(filepath.Join(ws.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	moves := new(sandbox)
	write("f", "p:3\np:4\n")
	write("h", "p:5\n")
	want()
	if err := ws.expectDeletion(moves, "f", "=0\np:3\np:5\n"); err != nil {
		t.Fatal(err)
	}
	want()
	remove("f")
	remove("h")
	other := []string{"p:4 of " + filepath.Join(ws.dir, "f"), "p:5 of " + filepath.Join(ws.dir, "h")}
	want(other...)
	if err := ws.expectDeletion(moves, "f", ""); err != nil {
		t.Error(err)
	}
	ws.endDeletion(moves)
	write("f", "p:4\n")
	write("h", "p:5\n")
	write("i", "p:6\n")
	want()
	if err := ws.expectDeletion(moves, "i", "p:6\n"); err != nil {
		t.Fatal(err)
	}
	ws.endDeletion(moves)
	remove("i")
	want("p:6 of " + filepath.Join(ws.dir, "i"))
}

package commands

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestALostEditIsNoticed: an edit that goes is missing, one that moves to another file is not,
// and one that was replaced on purpose is not looked for again.
func TestALostEditIsNoticed(t *testing.T) {
	ws := &workspace{dir: treetest.Dir(t), must: map[string]string{}, free: map[string]bool{}}
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
}

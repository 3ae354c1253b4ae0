package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ReplaceQuickly writes a file that does not exist, one that exists, and one beside which a killed process has left a
// longer text; nothing else remains in the directory.
func TestReplaceQuicklyLeavesTheNewContentAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lease")
	for i, text := range []string{"first", "the second", "third", ""} {
		if i == 2 {
			if err := os.WriteFile(newName(path), []byte(strings.Repeat("x", 5000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := ReplaceQuickly(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); string(got) != text || err != nil {
			t.Errorf("the file has %q, %v, want %q", got, err, text)
		}
		if entries, err := os.ReadDir(dir); len(entries) != 1 || err != nil {
			t.Errorf("the directory has %v, %v", entries, err)
		}
	}
	if err := ReplaceQuickly(filepath.Join(dir, "missing", "lease"), nil); err == nil {
		t.Error("a file in a missing directory was replaced")
	}
}

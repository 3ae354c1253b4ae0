//go:build linux

package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// contents reads a tree of this package.
func contents(t *testing.T, dir string, files int) map[string]string {
	t.Helper()
	all := map[string]string{}
	for i := range files {
		data, err := os.ReadFile(filepath.Join(dir, FileOf(i)))
		if err != nil {
			t.Fatal(err)
		}
		all[FileOf(i)] = string(data)
	}
	return all
}

func grown(t *testing.T, files int) string {
	t.Helper()
	dir := t.TempDir()
	if err := Grow(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestATreeIsTheSameEveryTime(t *testing.T) {
	a, b := contents(t, grown(t, 300), 300), contents(t, grown(t, 300), 300)
	bytes := 0
	for name, data := range a {
		if b[name] != data {
			t.Errorf("%s differs", name)
		}
		bytes += len(data)
	}
	if len(a) != 300 || bytes < 300*1024 || bytes > 300*3072 {
		t.Errorf("%d files with %d bytes", len(a), bytes)
	}
}

func TestAHundredFilesAreChangedInsideAndOutside(t *testing.T) {
	const files = 1_000
	clean := contents(t, grown(t, files), files)
	outside, inside := grown(t, files), grown(t, files)
	if err := Dirty(outside, files, 7); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", DirtyScript(files, 7))
	cmd.Dir = inside
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a, b := contents(t, outside, files), contents(t, inside, files)
	changed := 0
	for name, was := range clean {
		if a[name] != was {
			changed++
		}
		if a[name] != b[name] {
			t.Errorf("%s: %q outside, %q inside", name, a[name], b[name])
		}
	}
	if changed != ChangedFiles {
		t.Errorf("%d files are changed, want %d", changed, ChangedFiles)
	}
}

func TestAStormLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := Storm(dir, 150); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

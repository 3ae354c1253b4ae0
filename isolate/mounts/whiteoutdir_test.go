//go:build linux

package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// storable returns a state directory's images directory, which does not exist yet, and an overlay with its upper layer
// beside it. It skips the test where the filesystem cannot hold whiteouts.
func storable(t *testing.T) (images string, o *Overlay) {
	t.Helper()
	state, tree := t.TempDir(), t.TempDir()
	try := filepath.Join(state, "try")
	if err := makeWhiteoutDir(try, nil); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(try); err != nil || !info.IsDir() {
		treetest.Skip(t, "a filesystem with whiteouts", "overlayfs cannot hold them")
	}
	return filepath.Join(state, "images"), &Overlay{Lower: []string{tree}, Upper: state + "/upper"}
}

func secretNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf(".name-%04d", i))
	}
	return names
}

// All containers that hide the same names have one directory with the whiteouts.
func TestWhiteoutsAreStoredOnce(t *testing.T) {
	images, o := storable(t)
	many := secretNames(1000)
	hidden := []Hidden{{Dir: "home/one", Absent: many}, {Dir: ".", Absent: []string{"home", "y"}}, {Dir: "home/one/empty"}}
	want := map[string][]string{
		".": {whiteoutName, "home", "y"}, "home": {"one"}, "home/one": append(slices.Clone(many), "empty"), "home/one/empty": nil,
	}
	first := storedWhiteouts(images, o, hidden)
	if first == "" {
		t.Fatal("no directory was made")
	}
	checkWhiteouts(t, first, want)
	if again := storedWhiteouts(images, o, hidden); again != first {
		t.Errorf("the second directory is %q, the first %q", again, first)
	}
	if other := storedWhiteouts(images, o, hidden[:2]); other == first || other == "" {
		t.Errorf("the directory for fewer names is %q, the first %q", other, first)
	}
	list, err := os.ReadDir(filepath.Dir(first))
	if err != nil || len(list) != 2 {
		t.Errorf("there are %d directories, not two: %v", len(list), err)
	}
	checkWhiteouts(t, first, want)
}

// Overlayfs refuses a tree that contains another layer, unless the tree is wrapped.
func TestWhiteoutsOutsideOfTheTreeAreALayer(t *testing.T) {
	images, o := storable(t)
	hidden := []Hidden{{Dir: ".", Absent: secretNames(100)}}
	state := filepath.Dir(images)
	for tree, outside := range map[string]bool{t.TempDir(): true, state: false, filepath.Dir(state): false, "/": false, state + "/none": false} {
		o.Lower = []string{"/first", tree}
		if got := storedWhiteouts(images, o, hidden); (got != "") != outside {
			t.Errorf("the whiteouts above %s are in %q", tree, got)
		}
	}
	o.Nested = true
	if storedWhiteouts(images, o, hidden) == "" {
		t.Error("the whiteouts are not stored for a wrapped tree")
	}
	o.Upper = ""
	if got := storedWhiteouts(images, o, hidden); got != "" {
		t.Errorf("an overlay without an upper layer has the whiteouts %q", got)
	}
}

// What a process left half made goes, what a container may use stays, and their number is bounded.
func TestStoredWhiteoutsAreFew(t *testing.T) {
	images, o := storable(t)
	names := secretNames(2 * maxWhiteoutDirs)
	all := filepath.Join(images, "names")
	old, fresh := filepath.Join(all, "new-old"), filepath.Join(all, "new-fresh")
	hourAgo := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(os.MkdirAll(old, 0o700), os.MkdirAll(fresh, 0o700), os.Chtimes(old, hourAgo, hourAgo)); err != nil {
		t.Fatal(err)
	}
	made := 0
	for i := range maxWhiteoutDirs + 5 {
		if storedWhiteouts(images, o, []Hidden{{Dir: ".", Absent: names[i : i+fewWhiteouts]}}) != "" {
			made++
		}
	}
	list, err := os.ReadDir(all)
	if err != nil || len(list) != maxWhiteoutDirs || made != maxWhiteoutDirs-1 {
		t.Errorf("%d directories and %d made, not %d: %v", len(list), made, maxWhiteoutDirs, err)
	}
	if _, err := os.Lstat(old); err == nil {
		t.Error("a directory that was left half made is there")
	}
	if _, err := os.Lstat(fresh); err != nil {
		t.Error(err)
	}
	if storedWhiteouts(images, o, []Hidden{{Dir: ".", Absent: names[:fewWhiteouts]}}) == "" {
		t.Error("the first directory was removed")
	}
}

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

// stored returns the directory with whiteouts that a container gets, which has ended.
func stored(t *testing.T, images string, o *Overlay, hidden []Hidden) string {
	t.Helper()
	dir, held := storedWhiteouts(images, o, hidden)
	if (dir == "") != (held == nil) {
		t.Errorf("%q is held by %v", dir, held)
	}
	if held != nil {
		held.Close()
	}
	return dir
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
	first := stored(t, images, o, hidden)
	if first == "" {
		t.Fatal("no directory was made")
	}
	checkWhiteouts(t, first, want)
	if again := stored(t, images, o, hidden); again != first {
		t.Errorf("the second directory is %q, the first %q", again, first)
	}
	if other := stored(t, images, o, hidden[:2]); other == first || other == "" {
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
		if got := stored(t, images, o, hidden); (got != "") != outside {
			t.Errorf("the whiteouts above %s are in %q", tree, got)
		}
	}
	o.Nested = true
	if stored(t, images, o, hidden) == "" {
		t.Error("the whiteouts are not stored for a wrapped tree")
	}
	o.Upper = ""
	if got := stored(t, images, o, hidden); got != "" {
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
		if stored(t, images, o, []Hidden{{Dir: ".", Absent: names[i : i+fewWhiteouts]}}) != "" {
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
	if stored(t, images, o, []Hidden{{Dir: ".", Absent: names[:fewWhiteouts]}}) == "" {
		t.Error("the first directory was removed")
	}
}

// Stored whiteouts go when nobody has used them for 30 days, and never while a container has them as a layer.
func TestUnusedWhiteoutsAreRemoved(t *testing.T) {
	images, o := storable(t)
	names := secretNames(4 * fewWhiteouts)
	hide := func(i int) []Hidden {
		return []Hidden{{Dir: "d", Absent: names[i*fewWhiteouts : (i+1)*fewWhiteouts]}}
	}
	dirs := map[string]string{"lately": stored(t, images, o, hide(0)), "long ago": stored(t, images, o, hide(1))}
	running, held := storedWhiteouts(images, o, hide(2))
	if running == "" {
		t.Fatal("no directory was made")
	}
	dirs["running"] = running
	again := stored(t, images, o, hide(3))
	dirs["again"] = again
	age := func(dir string, by time.Duration) {
		t.Helper()
		when := time.Now().Add(-by)
		if err := os.Chtimes(dir, when, when); err != nil {
			t.Fatal(err)
		}
	}
	age(dirs["lately"], unusedTime-time.Hour)
	for _, name := range []string{"long ago", "running", "again"} {
		age(dirs[name], unusedTime+time.Hour)
	}
	if stored(t, images, o, hide(3)) != again { // a start notes the use
		t.Error("another directory is used")
	}
	want := func(gone ...string) {
		t.Helper()
		if err := PruneStored(images); err != nil {
			t.Error(err)
		}
		for name, dir := range dirs {
			if _, err := os.Lstat(dir); (err != nil) != slices.Contains(gone, name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if list, err := os.ReadDir(filepath.Dir(again)); err != nil || len(list) != len(dirs)-len(gone) {
			t.Errorf("%d entries: %v", len(list), err)
		}
	}
	want("long ago")
	held.Close()
	want("long ago", "running")
	if dir := stored(t, images, o, hide(2)); dir != running {
		t.Errorf("it is made again as %q", dir)
	}
	if err := PruneStored(filepath.Join(images, "none")); err != nil {
		t.Error(err)
	}
}

// A start beside a removal gets a directory that stays, or none.
func TestARemovalBesideAStartTakesNoLayer(t *testing.T) {
	images, o := storable(t)
	hidden := []Hidden{{Dir: ".", Absent: secretNames(fewWhiteouts)}}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			old := time.Now().Add(-2 * unusedTime)
			dir := filepath.Join(storedIn(images), keyOf(hidden, nil))
			if err := os.Chtimes(dir, old, old); err != nil && !errors.Is(err, os.ErrNotExist) {
				done <- err
				return
			}
			if err := PruneStored(images); err != nil {
				done <- err
				return
			}
		}
	}()
	got := 0
	for range 2000 {
		dir, held := storedWhiteouts(images, o, hidden)
		if dir == "" {
			continue
		}
		got++
		if list, err := os.ReadDir(dir); err != nil || len(list) != fewWhiteouts+1 {
			t.Errorf("the layer has %d entries: %v", len(list), err)
		}
		held.Close()
	}
	close(stop)
	if err := <-done; err != nil || got == 0 {
		t.Errorf("%d layers, %v", got, err)
	}
}

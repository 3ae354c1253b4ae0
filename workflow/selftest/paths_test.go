package selftest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/hostfs/places"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// TestWhatIsShownAsItIsIsTried, but for copies, trees in a frame, and what to open may
// do something.
func TestWhatIsShownAsItIsIsTried(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(in("file"), nil, 0o600), os.Mkdir(in("tree"), 0o700), syscall.Mkfifo(in("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	h := &supervise.Supervisor{Mounts: []isolate.Mount{
		{Target: dir, Skeleton: dir},
		{Target: in("tree"), Overlay: &isolate.Overlay{Lower: []string{in("tree")}}},
		{Target: "/copy", Source: in("tree")},
		{Target: in("pipe"), Source: in("pipe"), ReadOnly: true},
		{Target: in("gone"), Source: in("gone"), ReadOnly: true},
	}}
	paths := func(h *supervise.Supervisor) []string {
		return new(Tester).subjects()["read-only"].paths(t.Context(), nil, h)
	}
	if got := paths(h); !slices.Equal(got, []string{in("file")}) {
		t.Errorf("%q", got)
	}
	h.Mounts = append(h.Mounts, isolate.Mount{Target: in("tree"), Source: in("tree"), ReadOnly: true})
	if got := paths(h); !slices.Equal(got, []string{in("file"), in("tree")}) {
		t.Errorf("%q", got)
	}
}

// TestWhatIsHisInAnothersDirectoryIsTried, the nearest of it, but for what the sandbox has
// another mount of.
func TestWhatIsHisInAnothersDirectoryIsTried(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.MkdirAll(in("a/his"), 0o755), os.Mkdir(in("tree"), 0o755), os.WriteFile(in("locked"), nil, 0o400))
	for _, path := range []string{in("a"), dir} {
		err = errors.Join(err, os.Chmod(path, 0o555))
		t.Cleanup(func() { os.Chmod(path, 0o755) })
	}
	if err != nil {
		t.Fatal(err)
	}
	shown := isolate.Mount{Target: dir, Source: dir, ReadOnly: true}
	for _, c := range []struct {
		name   string
		mounts []isolate.Mount
		want   []string
	}{
		{"the nearest", []isolate.Mount{shown}, []string{dir, in("tree")}},
		{"not a tree", []isolate.Mount{shown, {Target: in("tree")}}, []string{dir, in("a/his")}},
		{"nothing but trees", []isolate.Mount{shown, {Target: in("tree")}, {Target: in("a/his")}}, []string{dir}},
	} {
		if got := asTheyAre(c.mounts); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
	if got := firstWithin(dir, []isolate.Mount{{Target: in("tree")}}, 3); len(got) > 0 {
		t.Errorf("of the three names nearby none is his, and %q was found", got)
	}
}

// TestAKilledSelfTestLeavesNothingForEver: neither its files nor the one that was to replace the first. Those of one that
// runs stay.
func TestAKilledSelfTestLeavesNothingForEver(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	dir := filepath.Join(home, filepath.Dir(places.SelfTest[0]))
	in := func(i int) string { return filepath.Join(home, places.SelfTest[i]) }
	killed := []string{in(1), in(1) + nextFile, in(2) + nextFile, filepath.Join(in(3), plantedName), in(3)}
	running := []string{in(4), in(4) + nextFile}
	err := os.MkdirAll(in(3), 0o755)
	for _, path := range append([]string{killed[0], killed[1], killed[2], killed[3]}, running...) {
		err = errors.Join(err, os.WriteFile(path, nil, 0o644))
	}
	past := time.Now().Add(-2 * time.Hour)
	for _, path := range killed {
		err = errors.Join(err, os.Chtimes(path, past, past))
	}
	if err != nil {
		t.Fatal(err)
	}
	file := plantFile()
	if file != in(0) {
		t.Errorf("the self-test takes %s", file)
	}
	removePlanted(file)
	for _, path := range killed {
		if isThere(path) {
			t.Errorf("%s stays", path)
		}
	}
	for _, path := range running {
		if !isThere(path) {
			t.Errorf("%s of a running self-test is gone", path)
		}
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(os.WriteFile(in(5)+nextFile, nil, 0o644), os.Chtimes(in(5)+nextFile, past, past)); err != nil {
		t.Fatal(err)
	}
	if removePlanted(plantFile()); isThere(dir) {
		t.Error("the directory of the places stays")
	}
}

// TestEightSelfTestsRunAtOnce: each takes two places.
func TestEightSelfTestsRunAtOnce(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for i := range 8 {
		file := plantFile()
		if late := plantSecret([]string{file}); file == "" || len(late) != 1 {
			t.Fatalf("self-test %d has %q and %q", i+1, file, late)
		}
	}
}

package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// forest makes a tree of n files in directories of a hundred, nested three
// deep, and a file beside it that is younger than all of them.
func forest(t testing.TB, n int) (tree, reference string) {
	t.Helper()
	top := treetest.Dir(t)
	tree, reference = filepath.Join(top, "tree"), filepath.Join(top, "reference")
	for d := range (n + 99) / 100 {
		dir := fmt.Sprintf("%s/%d/%d/%d", tree, d%7, d%50, d)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for f := range 100 {
			if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, f), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(20 * time.Millisecond)
	if err := os.WriteFile(reference, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	return tree, reference
}

func nothing(string) bool { return false }

func late(t testing.TB, tree string, since time.Time, skip func(string) bool, threads int) []string {
	t.Helper()
	found, err := walkSince(t.Context(), tree, since, skip, threads)
	if err != nil {
		t.Fatal(err)
	}
	paths := make([]string, 0, len(found))
	for _, p := range found {
		paths = append(paths, p.path)
	}
	return paths
}

// findNewer is what find(1) finds, by paths relative to the tree.
func findNewer(t testing.TB, tree, reference string) []string {
	t.Helper()
	out, err := run.Output(context.Background(), "find", tree, "-cnewer", reference, "-printf", `%P\0`)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for path := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		paths = append(paths, path)
	}
	return paths
}

func TestTheWalkFindsWhatFindFindsParentsFirst(t *testing.T) {
	tree, reference := forest(t, 3000)
	info, err := os.Stat(reference)
	if err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(dir string) error{
		func(dir string) error { return os.WriteFile(dir+"/1", []byte("x"), 0o644) },
		func(dir string) error { return os.Remove(dir + "/2") },
		func(dir string) error { return os.Chmod(dir, 0o700) },
		func(dir string) error { return os.Rename(dir+"/3", dir+"/a b\nc") },
		func(dir string) error { return os.MkdirAll(dir+"/new/newer", 0o755) },
		func(dir string) error { return os.Symlink("/", dir+"/link") },
	} {
		if err := change(fmt.Sprintf("%s/%d/%d/%d", tree, i, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	want := findNewer(t, tree, reference)
	slices.Sort(want)
	for _, threads := range []int{1, 2, 4} {
		got := late(t, tree, info.ModTime().Add(time.Nanosecond), nothing, threads)
		if !slices.IsSortedFunc(got, func(a, b string) int {
			if diff.Less(a, b) {
				return -1
			}
			return 1
		}) {
			t.Errorf("with %d threads what was found is not in order: %q", threads, got)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("with %d threads:\ngot  %q\nwant %q", threads, got, want)
		}
	}
	skip := func(path string) bool { return path == "1" || path == "2/2/2/2" }
	for _, path := range late(t, tree, info.ModTime(), skip, 2) {
		if path == "1" || strings.HasPrefix(path, "1/") {
			t.Errorf("%s was to be left out", path)
		}
	}
}

func TestTheWalkEndsWithItsContext(t *testing.T) {
	tree, _ := forest(t, 3000)
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	found, err := walkSince(ctx, tree, time.Time{}, func(string) bool {
		if n++; n == 100 {
			cancel()
		}
		return false
	}, 1)
	if err == nil || len(found) > 0 || n > 300 {
		t.Errorf("%d places looked at, %d found, %v", n, len(found), err)
	}
	if _, err := walkSince(t.Context(), tree+"/none", time.Time{}, nothing, 2); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("a walk of nothing: %v", err)
	}
}

func timeOf(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

// BenchmarkWalkBesideFind: the walk of 100,000 warm files with one, two and four
// threads, each beside find -cnewer, than which it is no slower as it is used.
func BenchmarkWalkBesideFind(b *testing.B) {
	tree, reference := forest(b, 100_000)
	times := map[int][]time.Duration{}
	for b.Loop() {
		times[0] = append(times[0], timeOf(func() { findNewer(b, tree, reference) }))
		for _, threads := range []int{1, 2, 4} {
			times[threads] = append(times[threads], timeOf(func() { late(b, tree, time.Now(), nothing, threads) }))
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds()) / 1000
	}
	find := median(times[0])
	b.ReportMetric(find, "find-ms")
	for _, threads := range []int{1, 2, 4} {
		ratio := median(times[threads]) / find
		b.ReportMetric(ratio, fmt.Sprintf("%d-threads/find", threads))
		if threads == walkThreads && len(times[0]) >= 5 && ratio > 1 {
			b.Errorf("the walk takes %.2f times what find takes", ratio)
		}
	}
}

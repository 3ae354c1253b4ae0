package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
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
		if !slices.IsSortedFunc(got, diff.ComparePaths) {
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

// A walk whose context ends, as that of a command with little time for it, looks at nothing more:
// neither at the directories that it knows of, nor at the rest of a large one.
func TestTheWalkEndsWithItsContext(t *testing.T) {
	treetest.OncePerRun(t)
	tree, _ := forest(t, 10_000)
	const most = 20
	for _, threads := range []int{1, walkThreads} {
		ctx, cancel := context.WithCancel(t.Context())
		var dirs atomic.Int32
		_, err := walkSince(ctx, tree, time.Now(), func(string) bool {
			if dirs.Add(1) == most {
				cancel()
			}
			return false
		}, threads)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("in %d threads: %v", threads, err)
		}
		// Until it looks at the clock, each thread sees a few names.
		if n := dirs.Load(); n > most+int32(threads*namesBetween) {
			t.Errorf("in %d threads: %d directories, %d of them after the end", threads, n, n-most)
		}
	}
	if _, err := walkSince(t.Context(), tree+"/none", time.Time{}, nothing, 2); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("a walk of nothing: %v", err)
	}
}

// A walk that ends at its deadline says whether that is due to the size of the tree.
func TestAWalkThatSawManyNamesSaysSo(t *testing.T) {
	for _, large := range []bool{false, true} {
		dir := treetest.Dir(t)
		for at, files := dir, manyNames/4; files > 0; files-- {
			if err := os.WriteFile(fmt.Sprintf("%s/%d", at, files), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for at, depth := dir, 0; large && depth < 5; depth++ {
			at += "/next"
			if err := os.Mkdir(at, 0o755); err != nil {
				t.Fatal(err)
			}
			for f := range manyNames / 4 {
				if err := os.Link(fmt.Sprintf("%s/%d", dir, f+1), fmt.Sprintf("%s/%d", at, f)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.MkdirAll(dir+strings.Repeat("/next", 6), 0o755); err != nil {
			t.Fatal(err)
		}
		ctx := lateTimer{t.Context(), new(atomic.Bool)}
		_, err := walkSince(ctx, dir, time.Now().Add(time.Hour), func(path string) bool {
			ctx.over.Store(strings.Count(path, "next") == 6)
			return false
		}, 1)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errManyNames) != large {
			t.Errorf("large %t: %v", large, err)
		}
	}
}

// A lateTimer is a context whose deadline has passed once over is set, but whose timer never fires:
// a busy process runs timers late.
type lateTimer struct {
	context.Context
	over *atomic.Bool
}

func (c lateTimer) Deadline() (time.Time, bool) {
	if c.over.Load() {
		return time.Now().Add(-time.Second), true
	}
	return time.Now().Add(time.Hour), true
}

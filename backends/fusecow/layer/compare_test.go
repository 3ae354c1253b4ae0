//go:build linux

package layer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
)

// TestCompareReportsADeepChangeAlone: a file that was changed deep in the lower is a single path, without the
// siblings of its parents.
func TestCompareReportsADeepChangeAlone(t *testing.T) {
	b := newBench(t)
	b.must(os.MkdirAll(b.lower+"/dir/sub", 0o755))
	b.write(b.lower+"/dir/sub/file", "base")
	b.up()
	b.write(b.mount+"/dir/sub/file", "mine")
	b.must(os.Chmod(b.mount+"/dir/sub", 0o700))
	b.down()
	reported := map[string]bool{}
	b.must(layer.Compare(layer.Options{Lower: b.lower}, layer.Options{Lower: b.lower, Layers: b.layers}, 0, 0, func(path string, tree bool) error {
		reported[path] = true
		if tree {
			t.Errorf("all beneath %s is said to differ", path)
		}
		return nil
	}))
	for _, path := range []string{"dir/sub/file", "dir/sub"} {
		if !reported[path] {
			t.Errorf("%s is not told", path)
		}
	}
}

// TestCompareIsLinearInDepth: the change of one file below twice as many directories takes twice as many steps, and no
// walk up from each directory to the root. Each step allocates, so the allocations count the steps.
func TestCompareIsLinearInDepth(t *testing.T) {
	steps := func(depth int) float64 {
		b := newBench(t)
		file := strings.Repeat("/d", depth) + "/file"
		b.must(os.MkdirAll(filepath.Dir(b.lower+file), 0o755))
		b.write(b.lower+file, "base")
		b.up()
		b.write(b.mount+file, "mine")
		b.down()
		fork := layer.Options{Lower: b.lower, Layers: b.layers}
		return testing.AllocsPerRun(1, func() {
			b.must(layer.Compare(layer.Options{Lower: b.lower}, fork, 0, 0, func(string, bool) error { return nil }))
			_, err := layer.FindBorrowed(fork)
			b.must(err)
		})
	}
	if half, whole := steps(200), steps(400); whole > 3*half {
		t.Errorf("%.0f allocations at 200 directories, %.0f at 400", half, whole)
	}
}

// TestCompareFindsTheHardLinksOfAChangedFile: all names of a file with several links are
// reported, wherever they are in the lower, and nothing else beside them. Links that the
// layers hide, or that are gone from the lower, do not make it report the whole tree.
func TestCompareFindsTheHardLinksOfAChangedFile(t *testing.T) {
	b := newBench(t)
	for _, dir := range []string{"/a/deep/er", "/b/beside", "/c"} {
		b.must(os.MkdirAll(b.lower+dir, 0o755))
		b.write(b.lower+dir+"/other", "untouched")
	}
	names := []string{"a/deep/er/file", "a/near", "b/beside/far", "c/hidden", "c/gone"}
	b.write(b.lower+"/"+names[0], "base")
	for _, name := range names[1:] {
		b.must(os.Link(b.lower+"/"+names[0], b.lower+"/"+name))
	}
	b.up()
	b.write(b.mount+"/"+names[0], "mine")
	b.must(os.Remove(b.mount + "/c/hidden"))
	b.down()
	b.must(os.Remove(b.lower + "/c/gone"))
	reported := map[string]bool{}
	b.must(layer.Compare(layer.Options{Lower: b.lower}, layer.Options{Lower: b.lower, Layers: b.layers}, 0, 0, func(path string, tree bool) error {
		reported[path] = true
		if tree && path == "." {
			t.Error("the whole tree is said to differ")
		}
		return nil
	}))
	for _, name := range names[:4] {
		if !reported[name] {
			t.Errorf("%s is not reported", name)
		}
	}
	for name := range reported {
		if filepath.Base(name) == "other" {
			t.Errorf("%s is reported, and did not change", name)
		}
	}
}

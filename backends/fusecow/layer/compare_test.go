//go:build linux

package layer_test

import (
	"os"
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
	b.must(layer.Compare(layer.Options{Lower: b.lower}, layer.Options{Lower: b.lower, Layers: b.layers}, func(path string, tree bool) error {
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

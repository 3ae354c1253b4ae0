//go:build linux

package layer_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// TestScriptMakesTheSameTreeAsOnDisk plays random changes on a plain directory and on the filesystem, with a
// freeze, a clean remount, and a crash after an fsync. Each time both trees are equal and the lower is
// unchanged.
func TestScriptMakesTheSameTreeAsOnDisk(t *testing.T) {
	steps := 150
	if testing.Short() {
		steps = 60
	}
	for seed := range uint64(treetest.Budget(t, 1, 2)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			b := newBench(t)
			plain, lower := treetest.Open(t, treetest.Dir(t)), treetest.Open(t, b.lower)
			w := treetest.NewWriter(seed, treetest.Powers{Root: true})
			play := func(s treetest.Script, roots ...*os.File) {
				t.Helper()
				for _, root := range roots {
					if err := s.Play(root); err != nil {
						t.Fatalf("on %s: %v", root.Name(), err)
					}
				}
			}
			play(w.Deep(), plain, lower)
			play(w.Script(steps), plain, lower)
			before := treetest.Manifest(t, b.lower, treetest.Options{})
			same := func(when string) {
				t.Helper()
				b.at(func(root *os.File) {
					b.must(unix.Fchmod(int(root.Fd()), 0o755))
					list, err := treetest.Differences(plain, root, treetest.Options{NoDirTimes: true})
					b.must(err)
					if len(list) > 0 {
						t.Fatalf("%s: %d differences: %.1000q", when, len(list), list)
					}
				})
			}
			b.up()
			same("at first")
			b.at(func(root *os.File) { play(w.Script(steps), plain, root) })
			same("after changes")
			b.freeze()
			b.at(func(root *os.File) { play(w.Script(steps), plain, root) })
			same("after a freeze")
			b.again(false)
			b.counted()
			same("mounted again")
			b.down()
			b.must(layer.Rewrite(b.options()))
			b.counted()
			b.up()
			same("with the log rewritten")
			b.at(func(root *os.File) {
				play(w.Script(steps), plain, root)
				b.must(root.Sync())
			})
			b.again(true)
			same("after a crash")
			b.down()
			b.counted()
			b.must(layer.Rewrite(b.options()))
			b.up()
			same("with the log rewritten again")
			for range 3 {
				b.freeze()
				b.at(func(root *os.File) { play(w.Script(steps), plain, root) })
			}
			same("with six layers")
			b.merge(1, 3)
			same("while two are merged")
			b.again(false)
			same("mounted merged")
			b.down()
			b.counted()
			b.merge(0, 3)
			b.up()
			same("merged again")
			b.freeze()
			b.at(func(root *os.File) { play(w.Script(steps), plain, root) })
			same("after a freeze above it")
			b.down()
			b.counted()
			for _, p := range b.check(false) {
				t.Error(p)
			}
			if lines := treetest.Lines(before, treetest.Manifest(t, b.lower, treetest.Options{})); len(lines) > 0 {
				t.Errorf("the tree below has changed: %q", lines)
			}
		})
	}
}

//go:build linux

package layer_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// raise detaches everything that the layers borrow, and returns the lower paths.
func (b *bench) detach() (list []layer.Borrowed) {
	b.Helper()
	list, err := layer.FindBorrowed(b.options())
	b.must(err)
	places := map[string]bool{}
	for _, one := range list {
		places[one.From] = true
	}
	f, err := layer.Open(b.options())
	b.must(err)
	b.must(f.Detach(b.Context(), places))
	b.must(f.Close())
	again, err := layer.FindBorrowed(b.options())
	if b.must(err); len(again) > 0 {
		b.Errorf("raised, and borrowed still: %v", again)
	}
	b.counted()
	for _, p := range b.check(false) {
		b.Error(p)
	}
	return list
}

// TestDetachedFilesNeedNoLower renames at random, detaches, and removes the lower.
func TestDetachedFilesNeedNoLower(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	seen := 0
	seeds := treetest.Budget(t, 2, 4)
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			b := newBench(t)
			w := treetest.NewWriter(seed, treetest.Powers{Root: true})
			play := func(s treetest.Script, root *os.File) {
				t.Helper()
				b.must(s.Play(root))
			}
			lower := treetest.Open(t, b.lower)
			play(w.Deep(), lower)
			play(w.Script(200), lower)
			b.up()
			for range 3 {
				b.at(func(root *os.File) { play(w.Script(60), root) })
				b.freeze()
			}
			manifest := func() string {
				var text strings.Builder
				b.at(func(root *os.File) {
					b.must(treetest.WriteManifest(&text, root, treetest.Options{NoLinks: true})) // hard links that were unknown
				})
				return text.String()
			}
			want := manifest()
			b.down()
			list := b.detach()
			seen += len(list)
			same := func(when string) {
				t.Helper()
				if lines := treetest.Lines(want, manifest()); len(lines) > 0 {
					t.Fatalf("%s: %d differences: %.1000q", when, len(lines), lines)
				}
			}
			b.up()
			same("raised")
			b.at(func(*os.File) {
				for _, one := range list {
					if _, err := os.Lstat(filepath.Join(b.mount, one.From)); errors.Is(err, fs.ErrNotExist) {
						b.must(os.RemoveAll(filepath.Join(b.lower, one.From)))
					}
				}
			})
			b.again(false)
			same("without what was borrowed")
			b.down()
			b.must(layer.Rewrite(b.options()))
			b.up()
			same("with the log rewritten")
			b.merge(1, 3)
			b.again(true)
			same("merged")
			b.down()
		})
	}
	if seen < 2*seeds {
		t.Errorf("%d places were borrowed: nothing to be tested by", seen)
	}
}

// TestDetachCopiesUpASparseUpper: a file that was changed in part is whole afterwards, even under its own name.
func TestDetachCopiesUpASparseUpper(t *testing.T) {
	l := newLarge(t)
	l.put("changed", 5000)
	l.freeze()
	l.put("again", 500000)
	l.down()
	l.detach()
	l.must(os.WriteFile(l.lower+"/large", bytes.Repeat([]byte("x"), largeSize), 0o644))
	l.up()
	if got, err := os.ReadFile(l.path); err != nil || !bytes.Equal(got, l.want) {
		t.Errorf("it is not what it was, %v", err)
	}
	l.down()
}

// TestDetachSplitsUnknownLinks: names that are detached together stay one file, other names become a file of
// their own.
func TestDetachSplitsUnknownLinks(t *testing.T) {
	b := newBench(t)
	b.must(os.MkdirAll(b.lower+"/dir/sub", 0o755))
	b.write(b.lower+"/dir/one", "text")
	for _, name := range []string{"dir/sub/two", "outside"} {
		b.must(os.Link(b.lower+"/dir/one", filepath.Join(b.lower, name)))
	}
	b.up()
	b.must(os.Rename(b.mount+"/dir", b.mount+"/new"))
	b.down()
	b.detach()
	b.must(os.RemoveAll(b.lower + "/dir"))
	b.up()
	for name, links := range map[string]int{"new/one": 2, "new/sub/two": 2, "outside": 1} {
		b.has(filepath.Join(b.mount, name), "text")
		var st unix.Stat_t
		if b.must(unix.Stat(filepath.Join(b.mount, name), &st)); int(st.Nlink) != links {
			t.Errorf("%s has %d names, want %d", name, st.Nlink, links)
		}
	}
	if b.ino(b.mount+"/new/one") != b.ino(b.mount+"/new/sub/two") || b.ino(b.mount+"/new/one") == b.ino(b.mount+"/outside") {
		t.Error("its names are those of other files than before")
	}
	b.down()
}

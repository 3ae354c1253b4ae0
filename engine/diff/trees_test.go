package diff_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/treetest"
)

// twins are two directories that a test makes different.
type twins struct {
	t        *testing.T
	old, new string
}

func makeTwins(t *testing.T) twins {
	t.Helper()
	dir := treetest.Dir(t)
	w := twins{t, filepath.Join(dir, "old"), filepath.Join(dir, "new")}
	w.do(os.Mkdir(w.old, 0o755), os.Mkdir(w.new, 0o755))
	return w
}

func (w twins) do(errs ...error) {
	w.t.Helper()
	for _, err := range errs {
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// each runs f on both trees.
func (w twins) each(f func(root string) error) {
	w.t.Helper()
	w.do(f(w.old), f(w.new))
}

// still gives every node of both trees the same time.
func (w twins) still() {
	w.t.Helper()
	w.each(func(root string) error {
		return filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			when := []unix.Timespec{{Sec: 1e9}, {Sec: 1e9}}
			return unix.UtimesNanoAt(unix.AT_FDCWD, path, when, unix.AT_SYMLINK_NOFOLLOW)
		})
	})
}

func (w twins) trees(opt diff.Options) []diff.Change {
	w.t.Helper()
	changes, err := diff.Trees(context.Background(), treetest.Open(w.t, w.old), treetest.Open(w.t, w.new), opt)
	w.do(err)
	return changes
}

// brief returns letter, path and differing aspects.
func brief(changes []diff.Change) string {
	var lines []string
	for _, c := range changes {
		line := c.Kind.Letter() + " " + c.Path
		if c.What != 0 {
			line += " " + c.What.String()
		}
		for _, n := range []*diff.Node{c.Old, c.New} {
			if n != nil && n.LinkOf != "" {
				line += " =" + n.LinkOf
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (w twins) want(got []diff.Change, want ...string) {
	w.t.Helper()
	if b := brief(got); b != strings.Join(want, "\n") {
		w.t.Errorf("changes:\n%s\nwant:\n%s", b, strings.Join(want, "\n"))
	}
}

func write(root, name, content string) error {
	return os.WriteFile(filepath.Join(root, name), []byte(content), 0o644)
}

func TestEveryKindOfChangeIsReportedInOrder(t *testing.T) {
	w := makeTwins(t)
	w.each(func(root string) error {
		w.do(os.MkdirAll(filepath.Join(root, "dir/sub"), 0o755), write(root, "dir/sub/f", "x"), write(root, "a", "one"))
		w.do(os.Symlink("a", filepath.Join(root, "link")), write(root, "dir.txt", "same"))
		return write(root, "mode", "m")
	})
	w.do(write(w.new, "a", "two"), os.RemoveAll(filepath.Join(w.new, "dir")), write(w.new, "dir", "now a file"))
	w.do(os.Remove(filepath.Join(w.new, "link")), os.Symlink("b", filepath.Join(w.new, "link")))
	w.do(os.Chmod(filepath.Join(w.new, "mode"), 0o4755), os.MkdirAll(filepath.Join(w.new, "n/e/w"), 0o755))
	w.still()
	w.want(w.trees(diff.Options{}),
		"M a content", "M dir type", "D dir/sub", "D dir/sub/f", "M link target", "M mode mode", "A n", "A n/e", "A n/e/w")
}

func TestHardLinksAreNamedAmongTheChangedPaths(t *testing.T) {
	w := makeTwins(t)
	w.each(func(root string) error {
		w.do(write(root, "a", "1"), write(root, "b", "1"), write(root, "x", "1"), write(root, "out", "1"))
		return os.Link(filepath.Join(root, "x"), filepath.Join(root, "y"))
	})
	w.do(os.Link(filepath.Join(w.new, "a"), filepath.Join(w.new, "c")))
	w.do(os.Link(filepath.Join(w.new, "out"), filepath.Join(w.new, "../elsewhere")))
	w.do(os.Remove(filepath.Join(w.new, "y")), write(w.new, "y", "1"))
	w.still()
	w.want(w.trees(diff.Options{}), "M a links", "A c =a", "M x links", "M y links =x")
}

package datafiles

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// made makes empty files below a new directory, and the directories above them, and returns the directory.
func made(t *testing.T, names ...string) string {
	t.Helper()
	dir := treetest.Dir(t)
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPatternsAreFoundOnTheRealMachine(t *testing.T) {
	dir := made(t, "a.md", "b.txt", "d/c.md", "d/x.md/in/deep.md", "s/*", "s/f")
	if err := errors.Join(os.Symlink("d", dir+"/link"), os.Symlink("a.md", dir+"/l.md")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{"*.md", []string{"a.md", "l.md"}},
		{"**/*.md", []string{"a.md", "d/c.md", "d/x.md", "l.md"}}, // a directory once, and nothing behind a link to one
		{"link/*.md", []string{"d/c.md", "d/x.md"}},               // the pattern's own directory is followed
		{"d/c.md", []string{"d/c.md"}},
		{"absent", []string{"absent"}}, // a path is named whether or not it exists
		{"absent/*", nil},
		{"a.md/*", nil},
		{`s/\*`, []string{"s/*"}},
		{"s/[*]", []string{"s/*"}},
	} {
		got, err := Find("readable", []string{filepath.Join(dir, c.pattern)}, false)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{}
		for _, name := range c.want {
			want = append(want, filepath.Join(dir, name))
		}
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", c.pattern, d)
		}
	}
	if got, err := Find("readable", nil, false); got != nil || err != nil {
		t.Errorf("no list: %q, %v", got, err)
	}
}

func TestAListBeyondTheBoundsIsRefused(t *testing.T) {
	names := make([]string, MaxPaths+1)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	dir := made(t, names...)
	all := []string{dir + "/*"}
	if _, err := Find("readable", all, true); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("%d files: %v", len(names), err)
	}
	if err := os.Remove(dir + "/0"); err != nil {
		t.Fatal(err)
	}
	if got, err := Find("readable", all, true); len(got) != MaxPaths || err != nil {
		t.Errorf("%d files, %v", len(got), err)
	}
	if _, err := Find("readable", append(all, "/other"), true); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("a path more: %v", err)
	}
}

// A read-only or recorded file in a directory that cannot be listed could be reached by its name.
func TestADirectoryThatCannotBeListed(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	dir := made(t, "d/a.md", "b.md")
	if err := os.Chmod(dir+"/d", 0o300); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir+"/d", 0o700) }) // so that it can be removed
	list := []string{dir + "/**/*.md"}
	if got, err := Find("readable", list, true); !slices.Equal(got, []string{dir + "/b.md"}) || err != nil {
		t.Errorf("readable: %q, %v", got, err)
	}
	if _, err := Find("read-only", list, false); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("read-only: %v", err)
	}
}

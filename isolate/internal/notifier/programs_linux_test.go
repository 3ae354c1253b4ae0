package notifier

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestProgramsAreThoseOfThePresentFile: a path that was seen before has another interpreter once its file is written to,
// replaced, or reached through another link.
func TestProgramsAreThoseOfThePresentFile(t *testing.T) {
	dir := treetest.Dir(t)
	for _, shell := range []string{"one", "two", "three"} {
		if err := os.WriteFile(filepath.Join(dir, shell), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, shell string) error {
		return os.WriteFile(filepath.Join(dir, name), []byte("#!/"+shell+" -x\n"), 0o755)
	}
	if err := errors.Join(write("script", "one"), write("other", "two"), os.Symlink("script", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s := NewTree(int(root.Fd()))
	defer s.Close()
	for deadline := time.Now().Add(time.Minute); len(s.seen) < 2; time.Sleep(10 * time.Millisecond) { // until the files have settled
		if got, want := s.Programs("/link"), []string{dir + "/script", dir + "/one"}; !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
		if time.Now().After(deadline) {
			t.Fatal("no file is remembered")
		}
	}
	for _, step := range []struct {
		change func() error
		want   []string
	}{
		{func() error { return nil }, []string{"/script", "/one"}},
		{func() error { return write("script", "two") }, []string{"/script", "/two"}},
		{func() error { return os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "script")) }, []string{"/script", "/two"}},
		{func() error { return write("script", "three") }, []string{"/script", "/three"}},
		{func() error {
			return errors.Join(os.Remove(filepath.Join(dir, "link")), os.Symlink("one", filepath.Join(dir, "link")))
		}, []string{"/one"}},
		{func() error { return os.Remove(filepath.Join(dir, "link")) }, nil},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, path := range step.want {
			want = append(want, dir+path)
		}
		if got := s.Programs("/link"); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

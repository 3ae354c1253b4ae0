package hostfs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A start asks the kernel for each path once, also for one that does not exist.
func TestAPathIsLookedUpOnce(t *testing.T) {
	dir := realDir(t)
	file, none := filepath.Join(dir, "file"), filepath.Join(dir, "none")
	mustWrite(t, file)
	l := newLookupCache()
	for range 2 { // the second time from memory
		if st, err := l.lstat(file); err != nil || !st.IsRegular() {
			t.Errorf("the file: %+v, %v", st, err)
		}
		if _, err := l.lstat(none); !absent(err) {
			t.Errorf("a missing file: %v", err)
		}
		if got := l.resolve(dir); got != dir {
			t.Errorf("the directory is resolved to %q", got)
		}
		if err := os.Rename(file, none); err != nil && !absent(err) {
			t.Fatal(err)
		}
	}
	if st, err := newLookupCache().lstat(none); err != nil || !st.IsRegular() {
		t.Errorf("another start does not find the file: %v", err)
	}
}

// Directories are resolved through links at any element, and to nothing if an element is missing or no directory.
func TestADirectoryIsResolvedThroughLinks(t *testing.T) {
	dir := realDir(t)
	mustWrite(t, filepath.Join(dir, "a/b/file"))
	for link, to := range map[string]string{"up": "a", "a/again": "../a/b", "loop": "loop", "none": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	l := newLookupCache()
	for path, want := range map[string]string{"a/b": "a/b", "up/b": "a/b", "up/again": "a/b", "a/again": "a/b", "loop": "", "none": "", "none/b": "", "a/b/file/c": "", "up/none": ""} {
		if want != "" {
			want = filepath.Join(dir, want)
		}
		if got := l.resolve(filepath.Join(dir, path)); got != want {
			t.Errorf("%s is resolved to %q, not %q", path, got, want)
		}
	}
	in := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
		return paths
	}
	got := l.followed(in("up/b/file", "up", "none/x", "a/again"))
	slices.Sort(got)
	if want := in("a", "a/again", "a/b", "a/b/file", "none/x", "up", "up/b/file"); !slices.Equal(got, want) {
		t.Errorf("followed are %q, not %q", got, want)
	}
}

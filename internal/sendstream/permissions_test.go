package sendstream

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// An ordinary user can apply a stream of root, although its modes would forbid some steps.
func TestModesInAStreamDoNotRestrictAnOrdinaryUser(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	mode := func(s *Writer, path string, mode uint64) { s.do(Chmod, part{aPath, path}, number(aMode, mode)) }
	dir := t.TempDir()
	err := applyTo(t, dir, streamOf(func(s *Writer) {
		mode(s, "", 0o555)
		s.Make("d", statOf(unix.S_IFDIR), "")
		mode(s, "d", 0o444)
		s.Make("d/e", statOf(unix.S_IFDIR), "")
		mode(s, "d/e", 0)
		s.Make("d/e/f", statOf(unix.S_IFREG), "")
		mode(s, "d/e/f", 0o444)
		s.SetXattr("d/e/f", "user.x", "y")
		s.SetXattr("d/e/f", "trusted.x", "y")
		s.RemoveXattr("d/e/f", "security.capability")
		s.Write("d/e/f", 0, []byte("text"))
		s.Make("to", statOf(unix.S_IFDIR), "")
		mode(s, "to", 0o555)
		s.Rename("d/e", "to/e")
	}))
	if err != nil {
		t.Fatal(err)
	}
	look := func(path string, mode os.FileMode) {
		t.Helper()
		at := filepath.Join(dir, path)
		if info, err := os.Lstat(at); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q is %v, %v", path, info, err)
		}
		if err := os.Chmod(at, 0o700); err != nil {
			t.Error(err)
		}
	}
	look("", 0o555)
	look("d", 0o444)
	look("to", 0o555)
	look("to/e", 0)
	look("to/e/f", 0o444)
	file := filepath.Join(dir, "to/e/f")
	attrs, err := vfs.Xattrs(unix.AT_FDCWD, file)
	if text, rerr := os.ReadFile(file); err != nil || rerr != nil || string(text) != "text" || len(attrs) != 1 || attrs["user.x"] != "y" {
		t.Errorf("the file has %q and %q, %v, %v", text, attrs, err, rerr)
	}
}

func TestAttributesOfRootAreLeftOutAndReported(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o444), os.Mkdir(filepath.Join(dir, "d"), 0o555)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	s := NewWriter(&b, true)
	s.Truncate("f", 3)
	s.Write("f", 0, []byte("new"))
	s.SetXattr("f", "trusted.x", "y")
	s.Make("d/f", statOf(unix.S_IFREG), "")
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	var left []string
	how := Options{OnBase: true, LeftOut: func(path, attr string) { left = append(left, path+" "+attr) }}
	if err := Apply(t.Context(), treetest.Open(t, dir), &b, how); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "f")); string(text) != "new" || err != nil {
		t.Errorf("the file has %q, %v", text, err)
	}
	d := filepath.Join(dir, "d")
	if info, err := os.Lstat(d); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("the directory is %v, %v", info, err)
	}
	if err := os.Chmod(d, 0o700); err != nil { // so that it can be removed
		t.Error(err)
	}
	if !slices.Equal(left, []string{"f trusted.x"}) {
		t.Errorf("the attributes left out are %q", left)
	}
}

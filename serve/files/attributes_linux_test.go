package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/files"
)

// TestAttributesAreThoseBelowTheRoot: no link leads to a file outside, and only attributes of users are reached.
func TestAttributesAreThoseBelowTheRoot(t *testing.T) {
	dir := treetest.Dir(t)
	root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
	err := errors.Join(os.Mkdir(root, 0o755), os.WriteFile(outside, nil, 0o644), os.WriteFile(filepath.Join(root, "f"), nil, 0o600),
		os.Symlink("f", filepath.Join(root, "link")), os.Symlink(outside, filepath.Join(root, "out")), os.Symlink("../outside", filepath.Join(root, "up")),
		os.Symlink("/proc/self/fd", filepath.Join(root, "magic")), unix.Mkfifo(filepath.Join(root, "pipe"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	r, err := files.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	values := map[string]string{"a": "1", "b": strings.Repeat("x", 1000)}
	for _, path := range []string{"f", "link", "."} {
		if err := r.SetAttributes("user.t.", path, values); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	all, err := r.Attributes("user.t.", []string{"f", "out", "nope", "pipe", "../f", "."})
	if err != nil || len(all) != 6 || all[0]["a"] != "1" || len(all[0]["b"]) != 1000 || all[1] != nil || all[2] != nil || all[3] != nil || all[4]["a"] != "1" || all[5]["a"] != "1" {
		t.Errorf("%v, %v", all, err)
	}
	for path, kind := range map[string]error{"out": errs.ErrNotFound, "up": errs.ErrNotFound, "pipe": errs.ErrInvalid, "nope": errs.ErrNotFound, "": errs.ErrInvalid} {
		if err := r.SetAttributes("user.t.", path, values); !errors.Is(err, kind) {
			t.Errorf("%q: %v, want %v", path, err, kind)
		}
	}
	if n, err := unix.Listxattr(outside, nil); err != nil || n != 0 {
		t.Errorf("the file outside has attributes: %d, %v", n, err)
	}
	for _, bad := range []map[string]string{{"": "x"}, {strings.Repeat("n", 300): "x"}, {"n": strings.Repeat("x", 5000)}, {"a\x00b": "x"}} {
		if err := r.SetAttributes("user.t.", "f", bad); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%.40v: %v", bad, err)
		}
	}
	for _, prefix := range []string{"", "trusted.", "security.", "user"} {
		if err := r.SetAttributes(prefix, "f", values); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v", prefix, err)
		}
		if _, err := r.Attributes(prefix, []string{"f"}); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

package leak_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/network/placeholder"
)

// secret is the value of the secret KEY of the sandboxes in these tests.
const secret = "hunter2-and-more"

// holder returns the record and the directory of a sandbox with the secret KEY.
func holder(t *testing.T) (*catalog.Record, string) {
	t.Helper()
	dir := t.TempDir()
	if err := leak.Store(dir, placeholder.Prints("KEY", []byte(secret))); err != nil {
		t.Fatal(err)
	}
	rec := &catalog.Record{Name: "fix"}
	rec.Policy.Secrets = []catalog.Secret{{Name: "KEY"}}
	return rec, dir
}

// A secret is found in each part of a changed path, and where the merge has the content of the path from another one.
func TestCheckFindsASecretInEachPartOfAChange(t *testing.T) {
	rec, state := holder(t)
	tree := t.TempDir()
	for name, text := range map[string]string{"clean": "x", "old": "a " + secret + " b", "mark": placeholder.New(nil)} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.Open(tree)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	moved := map[string]string{"new": "old", "moved": "clean"}
	from := func(path string) (*os.File, string) {
		if other := moved[path]; other != "" {
			return root, other
		}
		return root, path
	}
	file := func(path string, xattrs map[string]string) diff.Change {
		return diff.Change{Path: path, Kind: diff.Added, New: &diff.Node{Mode: 0o600, Xattrs: xattrs}}
	}
	for _, c := range []struct {
		change diff.Change
		want   string // "" if the change is clean
	}{
		{file("clean", map[string]string{"user.note": "x"}), ""},
		{file("moved", nil), ""},
		{file("old", nil), "the secret KEY is in the file, at byte 2"},
		{file("new", nil), "the secret KEY is in the file, at byte 2"},
		{file("mark", nil), "a placeholder of a secret is in the file, at byte 0"},
		{file("clean", map[string]string{"user.note": secret}), "the secret KEY is in the extended attribute user.note"},
		{file(secret, nil), "the secret KEY is in its name or target"},
		{diff.Change{Path: "link", Kind: diff.Added, New: &diff.Node{Mode: os.ModeSymlink, Target: secret}}, "the secret KEY is in its name or target"},
		{diff.Change{Path: "old", Kind: diff.Deleted, Old: &diff.Node{Mode: 0o600}}, ""},
	} {
		err := leak.Check(rec, state, from, tree, []diff.Change{c.change})
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, errs.ErrDenied) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.change.Path, err, c.want)
		}
	}
	rec.Policy.Secrets = nil
	if err := leak.Check(rec, state, from, tree, []diff.Change{file("old", nil)}); err != nil {
		t.Errorf("a sandbox without secrets: %v", err)
	}
}

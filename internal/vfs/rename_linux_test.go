package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestARenameToANewNameReplacesNothing, whether the filesystem sees to it or not.
func TestARenameToANewNameReplacesNothing(t *testing.T) {
	for how, rename := range map[string]func(old, new string) error{"the filesystem's": RenameNew, "by hand": renameByHand} {
		for _, what := range []string{"file", "full", "empty"} {
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			for _, name := range []string{"old", "file", "full", "empty"} {
				err := os.Mkdir(at(name), 0o700)
				if name == "full" || name == "old" {
					err = errors.Join(err, os.WriteFile(at(name)+"/in", nil, 0o600))
				}
				if name == "file" {
					err = errors.Join(os.Remove(at(name)), os.WriteFile(at(name), nil, 0o600))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, old := range []string{"old", "file"} {
				if err := rename(at(old), at(what)); old != what && err != unix.EEXIST {
					t.Errorf("%s: %s to %s: %v", how, old, what, err)
				}
				if _, err := os.Lstat(at(old)); err != nil {
					t.Errorf("%s: %s to %s: %v", how, old, what, err)
				}
				if err := rename(at(old), at("new-"+old)); err != nil {
					t.Errorf("%s: %s to a new name: %v", how, old, err)
				}
				if old == what {
					continue
				}
				if err := rename(at(old), at("again")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: %s, which has gone: %v", how, old, err)
				}
			}
		}
	}
}

// TestAReplacementBringsNothingBack, whether the filesystem exchanges names or not.
func TestAReplacementBringsNothingBack(t *testing.T) {
	for how, replace := range map[string]func(next, path string) error{"the filesystem's": Replace, "by hand": replaceByHand} {
		dir := t.TempDir()
		next, path := filepath.Join(dir, "next"), filepath.Join(dir, "path")
		write := func(path, text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(next, "new")
		if err := replace(next, path); err != unix.ENOENT {
			t.Errorf("%s, of what has gone: %v", how, err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: what was gone is there: %v", how, err)
		}
		write(path, "old")
		if err := replace(next, path); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		if text, err := os.ReadFile(path); string(text) != "new" {
			t.Errorf("%s: it holds %q, %v", how, text, err)
		}
	}
}

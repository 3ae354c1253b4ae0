//go:build linux

// Package treetest is what the tests of this project stand on: filesystems to
// test on, ordinary users to test as, random trees to play on two
// implementations, an exact comparison of two trees, and a count of what a test
// left behind.
//
// It is imported by tests only. Everything it makes is taken back when the test
// ends, whether it passed, failed or panicked; what a killed test run left is
// taken back by the next one.
package treetest

import (
	"os"
	"path/filepath"
	"testing"
)

// Dir makes an empty directory on a real disk filesystem (unlike /tmp, which
// may be a tmpfs), for root and any user to enter, and removes it when the
// test ends. Directories mounted over within it must be unmounted by then.
func Dir(t testing.TB) string {
	t.Helper()
	reapOnce()
	dir, err := os.MkdirTemp(scratch, mark())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("scratch directory: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Open opens a directory, to be closed when the test ends.
func Open(t testing.TB, dir string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Clean(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

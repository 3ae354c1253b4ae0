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
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Dir makes an empty directory on a real disk filesystem (unlike /tmp, which
// may be a tmpfs), for root and any user to enter, and removes it when the
// test ends. Directories mounted over within it must be unmounted by then; what
// a command left at work in the background there has ten seconds to end.
func Dir(t testing.TB) string {
	t.Helper()
	reapOnce()
	dir, err := os.MkdirTemp(scratch, mark())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := os.RemoveAll(dir)
		for end := time.Now().Add(10 * time.Second); errors.Is(err, syscall.ENOTEMPTY) && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
			err = os.RemoveAll(dir)
		}
		if err != nil {
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

//go:build linux

// Package treetest holds the tools of this project's tests: filesystems to test on, ordinary
// users to test as, random trees to build in two implementations, an exact comparison of two
// trees, and a count of leaked objects.
//
// Only tests import it. Everything it makes is removed when the test ends, whether it passed,
// failed or panicked; the next test run removes what a killed one left.
package treetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
)

// Dir makes an empty directory for a test on a disk filesystem (/tmp may be a tmpfs), which any user may
// enter, and removes it when the test ends. Mounts in it must be unmounted by then. Dir waits up to ten
// seconds for a background process that still works in the directory, and then fails the test.
func Dir(t testing.TB) string {
	t.Helper()
	reapOnce()
	dir, err := os.MkdirTemp(scratch, mark())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := os.RemoveAll(dir)
		if errors.Is(err, fs.ErrPermission) { // an ordinary user's directory that the test has closed
			_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, _ error) error {
				if e != nil && e.IsDir() {
					_ = os.Chmod(path, 0o700)
				}
				return nil
			})
			err = os.RemoveAll(dir)
		}
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
	// Tests delete thousands of files a minute. An ext4 without a journal does not use their inodes again for a
	// minute, and a new file next to them is found by looking at each: a fifth of the processor time of all tests.
	_ = vfs.SpreadDirs(dir) // other filesystems have no such flag
	return dir
}

// Open opens the directory dir for a test and closes it when the test ends.
func Open(t testing.TB, dir string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Clean(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

package vfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// TestNowDividesTheChangesOfFiles needs multigrain timestamps; on an older kernel
// only the later half holds.
func TestNowDividesTheChangesOfFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctime := func(name string) vfs.Timestamp {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := vfs.Lstat(unix.AT_FDCWD, path)
		if err != nil {
			t.Fatal(err)
		}
		return st.CTime
	}
	early := 0
	const tries = 200
	for range tries {
		before := ctime("before")
		now := vfs.Now()
		if after := ctime("after"); after.Time().Before(now) {
			t.Fatalf("a later change has the time %v, before %v", after.Time(), now)
		}
		if before.Time().Before(now) {
			early++
		}
	}
	if early < tries && multigrain(t, dir) {
		t.Errorf("%d of %d earlier changes have an earlier time", early, tries)
	}
}

// multigrain reports whether a filesystem stamps two changes with a look between
// them differently.
func multigrain(t *testing.T, dir string) bool {
	t.Helper()
	path := filepath.Join(dir, "multigrain")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var last vfs.Timestamp
	for range 10 {
		st, err := vfs.Lstat(unix.AT_FDCWD, path)
		if err != nil {
			t.Fatal(err)
		}
		if st.CTime == last {
			return false
		}
		last = st.CTime
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

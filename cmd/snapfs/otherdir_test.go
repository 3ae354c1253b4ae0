package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

const otherDirEnv = "SNAPFS_TEST_OTHER_DIR"

// TestAWorkspaceBelowAnothersDirectory: an ordinary user's workspace may lie in a directory of
// another user below /tmp, which also holds files.
func TestAWorkspaceBelowAnothersDirectory(t *testing.T) {
	if os.Getenv(otherDirEnv) == "" {
		treetest.NeedRoot(t)
		a := treetest.User(t)
		top, err := os.MkdirTemp("/tmp", "snapfs-test-other-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(top) })
		work := filepath.Join(top, "w", "ws")
		if err := errors.Join(os.Chmod(top, 0o755), os.MkdirAll(work, 0o755), os.Chown(work, a.UID, a.GID),
			os.WriteFile(filepath.Join(top, "file"), []byte("another's\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		treetest.RunAs(t, a, t.Name(), treetest.WithEnv(otherDirEnv+"="+work))
		return
	}
	b := newDesk(t)
	b.workspace = os.Getenv(otherDirEnv)
	b.snapfs("run", "--discard", "--", "sh", "-ec", "cat ../../file; echo mine > new; ! touch ../new").want(0)
}

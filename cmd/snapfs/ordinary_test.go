package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

const (
	otherDirEnv = "SNAPFS_TEST_OTHER_DIR"
	homeEnv     = "SNAPFS_TEST_MOUNT_IN_HOME"
)

// TestAMountInTheHomeAffectsItselfAlone: with a FUSE server, an ordinary user's home with a mount
// in it is writable in a sandbox as it is without the mount. Without one, its directories are.
func TestAMountInTheHomeAffectsItselfAlone(t *testing.T) {
	how := os.Getenv(homeEnv)
	if how == "" {
		treetest.NeedRoot(t)
		a := treetest.User(t)
		stick, side := filepath.Join(a.Home, "media", "stick"), filepath.Join(a.Home, "side")
		if err := errors.Join(os.MkdirAll(stick, 0o755), os.MkdirAll(side, 0o755), os.Chown(side, a.UID, a.GID),
			unix.Mount("snapfs-test", stick, "tmpfs", 0, "size=64k,mode=755")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(stick, 0); err != nil {
				t.Error(err)
			}
		})
		if err := os.WriteFile(filepath.Join(stick, "file"), []byte("on the stick\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		treetest.RunAs(t, a, t.Name(), treetest.WithEnv(homeEnv+"=fuse"), treetest.WithFUSE())
		if info, err := os.Stat("/dev/fuse"); err != nil || info.Mode()&0o6 == 0 {
			treetest.RunAs(t, a, t.Name(), treetest.WithEnv(homeEnv+"=none"))
		}
		return
	}
	b := newDesk(t)
	if how == "none" {
		b.snapfs("run", "--discard", "--", "sh", "-ec", "! touch ~/new; echo s > ~/side/new; cat ~/media/stick/file").want(0).
			has("on the stick", "1 added", "files directly in it are read-only in the sandbox, because of the mount")
		return
	}
	b.snapfs("run", "--discard", "--", "sh", "-ec", "touch ~/new ~/side/new; cat ~/media/stick/file").want(0).has("on the stick", "2 added")
}

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

//go:build linux

package fusecow_test

import (
	"os"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

// An ordinary user mounts in a user namespace, as a sandbox does, on filesystems that root has mounted.

func TestConformanceOfAnOrdinaryUser(t *testing.T) {
	s := subject("fusecow (user)")
	s.StorageOnly = !treetest.Long(t)
	byUser(t, s, "ext4")
}

// On btrfs and tmpfs only make test-long and make grounds run the user's part: make test runs root's there, and
// the user's on ext4.
func TestConformanceOfAnOrdinaryUserOnBtrfs(t *testing.T) {
	if os.Getenv(wholeEnv) == "" && !treetest.Long(t) {
		return
	}
	byUser(t, part("fusecow (user, on btrfs)"), "btrfs")
}

func TestConformanceOfAnOrdinaryUserOnTmpfs(t *testing.T) {
	if os.Getenv(wholeEnv) == "" && !treetest.Long(t) {
		return
	}
	byUser(t, part("fusecow (user, on tmpfs)"), "tmpfs")
}

func byUser(t *testing.T, s snapshottest.Subject, fs string) {
	treetest.OncePerRace(t)
	large, small := os.Getenv(groundEnv), os.Getenv(smallEnv)
	switch {
	case large != "":
		s.Place, s.Small = within(large), within(small)
	case os.Geteuid() == 0:
		userFromRoot(t, fs)
		return
	case fs == "ext4": // or whatever /var/tmp is on
		treetest.OncePerRun(t)
		s.Place = snapshottest.OnDisk
		s.Small = func(t testing.TB) snapshot.Place { return snapshottest.Within(t, treetest.Tmpfs(t, "32m")) }
	default:
		treetest.NeedRoot(t)
	}
	treetest.NeedDevice(t, "/dev/fuse")
	if treetest.InNamespace(t) {
		snapshottest.Run(t, s)
	}
}

// userFromRoot runs the same test in a process of an ordinary user.
func userFromRoot(t *testing.T, fs string) {
	treetest.NeedDevice(t, "/dev/fuse")
	user := treetest.User(t)
	large, small := ground(t, fs), small(t, fs)
	for _, dir := range []string{large, small} {
		if err := os.Chown(dir, user.UID, user.GID); err != nil {
			t.Fatal(err)
		}
	}
	treetest.RunAs(t, user, t.Name(), treetest.WithFUSE(), treetest.WithEnv(groundEnv+"="+large, smallEnv+"="+small))
}

//go:build linux

package fusecow_test

import (
	"os"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

// An ordinary user mounts in a user namespace of his own, as a sandbox does.
func TestConformanceOfAnOrdinaryUser(t *testing.T) {
	treetest.NeedDevice(t, "/dev/fuse")
	if os.Geteuid() == 0 {
		treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE())
		return
	}
	if !treetest.InNamespace(t) {
		return
	}
	snapshottest.Run(t, snapshottest.Subject{
		Name:   "fusecow (user)",
		Driver: driver(),
		Place:  snapshottest.OnDisk,
		Small:  func(t testing.TB) snapshot.Place { return snapshottest.Within(t, treetest.Tmpfs(t, "32m")) },
	})
}

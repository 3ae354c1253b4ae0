//go:build linux

package fusecow_test

import (
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestConformance(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	snapshottest.Run(t, byRoot())
}

func byRoot() snapshottest.Subject {
	return snapshottest.Subject{
		Name:   "fusecow (root)",
		Driver: driver(),
		Place:  snapshottest.OnDisk,
		Small:  func(t testing.TB) snapshot.Place { return snapshottest.Within(t, treetest.Ext4(t, 64<<20)) },
	}
}

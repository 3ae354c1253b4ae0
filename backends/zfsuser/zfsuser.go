//go:build linux

// Package zfsuser stores forks of trees on ZFS for an ordinary user to whom root has delegated
// snapshots (zfs-allow(8)). On Linux only root can mount a clone, whatever is delegated. So a
// capture is a ZFS snapshot, and a fork is a layer of package fusecow above the view of that
// snapshot in .zfs. The base is frozen, as for root.
//
// # Layout
//
// The layout is that of package fusecow. Its records name a snapshot of package zfs as the state of
// a tree.
package zfsuser

import (
	"context"

	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/engine/snapshot"
)

const name = "zfs-fusecow"

// Driver is the driver of this backend. It accepts any directory of a mounted ZFS dataset, for a user with
// the zfs-allow(8) grants that snapshots need. Each check of the grants runs zfs(8).
var Driver = snapshot.Driver{Name: name, Automatic: true, Filesystem: "zfs", Open: open}

func open(ctx context.Context, place snapshot.Place) (snapshot.Backend, error) {
	return fusecow.OpenFrozen(ctx, place, zfs.States{})
}

var _ fusecow.Freezer = zfs.States{}

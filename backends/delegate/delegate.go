//go:build linux

// Package delegate keeps forks of trees on ZFS for an ordinary user to whom root has
// delegated snapshots (zfs-allow(8)). Only root mounts a clone on Linux, whatever is granted: so a capture is a
// snapshot of ZFS, and a fork of it a layer of package fusecow's above what the kernel shows of that
// beneath .zfs. The base is frozen, as root's is.
//
// # Layout
//
// That of package fusecow. What its records call the state of a tree is a snapshot of package zfs's.
package delegate

import (
	"context"

	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/engine/snapshot"
)

const name = "zfs-fusecow"

// Driver opens this backend. It holds any directory of a mounted dataset, for who has the grants
// that snapshots take: each time they are asked for costs a run of zfs(8). Program finds the
// program that serves trees, as for [fusecow.Driver].
func Driver(program func() ([]string, error)) snapshot.Driver {
	return snapshot.Driver{Name: name, Automatic: true, Open: func(ctx context.Context, place snapshot.Place) (snapshot.Backend, error) {
		return fusecow.OpenFrozen(ctx, place, program, zfs.States{})
	}}
}

var _ fusecow.Freezer = zfs.States{}

//go:build linux

// Package zfs keeps snapshots and forks as snapshots and clones of ZFS datasets:
// constant time, whatever the size of the tree, and shared down to the block.
//
// # What can be captured
//
// A tree is a mounted dataset, or a directory inside one: then the whole dataset
// is snapshotted, and the view points at the directory in it. A dataset mounted
// beneath the tree is a tree of its own and shows as an empty directory.
//
// # Where the data lies
//
// A capture is a snapshot of the tree's own dataset; a fork is a clone in the
// dataset .snapfs beneath that, so that it inherits what the tree's dataset has
// (compression, ACLs, a quota), but for its mount point, which is legacy: zfs(8)
// neither mounts it at boot nor unmounts it. A sealed fork is a snapshot of the clone.
//
//	tank/home@snapfs-<unique>               a capture
//	tank/home/.snapfs/<unique>              a fork
//	tank/home/.snapfs/<unique>@snapfs-<u…>  a sealed fork
//
// Each has the user property snapfs:mark with its own unique number, given by the
// call that makes it; nothing is destroyed that has not. A snapshot is
// held (zfs-hold(8)) by the tag snapfs as long as it is one of ours.
//
// Which id is which dataset lies in the state directory:
//
//	snapshots/<id>/{mark,tree}   tree is where it is mounted, read-only
//	forks/<id>/{mark,tree}
//	homes/<hash of a dataset>    .snapfs was made there by us
//	trash/                       what is removed; Sweep destroys it
//
// A view is mounted when it is asked for, in the mount namespace of whoever asks,
// by mount(2); that of a fork lasts until it is removed. See docs/design/0010-zfs.md.
package zfs

import (
	"context"
	"errors"
	"os"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/vfs"
)

const name = "zfs"

// Driver opens this backend.
func Driver() snapshot.Driver { return snapshot.Driver{Name: name, Automatic: true, Open: Open} }

// Open answers with the backend for place.Tree. It writes nothing, and starts no
// program. Errors: ErrNotFound; ErrNotSupported: the tree does not lie on ZFS, the
// process is not root's, zfs(8) is missing, or the dataset's name is too long.
func Open(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
	b := &Backend{dir: place.Dir}
	if _, err := os.Lstat(place.Dir); place.Held && err == nil {
		return b, nil
	}
	if err := usable(place.Tree.Path); err != nil {
		if _, gone := os.Lstat(place.Dir); errors.Is(err, os.ErrNotExist) && gone == nil {
			return b, nil // the tree is gone, what was made of it is not
		}
		return nil, fail("opening", "", err)
	}
	return b, nil
}

// usable says why this process cannot capture and fork the tree.
func usable(tree string) error {
	if err := onZFS(tree); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return &problem{
			kind: errs.ErrNotSupported, path: tree,
			why:   "mounting a clone takes root on Linux, and no grant of zfs allow changes that",
			hints: []string{"sudo snapfs …", "snapfs … --backend zfs-fusecow"},
		}
	}
	if _, err := run.Look("zfs"); err != nil {
		return noProgram(err)
	}
	if _, err := vfs.Lstat(-1, "/dev/zfs"); err != nil {
		return &problem{
			kind: errs.ErrNotSupported, path: tree, why: "there is no /dev/zfs, by which zfs(8) speaks with the kernel",
			hints: []string{"modprobe zfs"},
		}
	}
	src, err := findSource(tree)
	if err != nil {
		return err
	}
	return fits(src)
}

// A Backend holds snapshots and forks of datasets. Any number of them, in any
// number of processes, may work in the same place at once.
type Backend struct {
	// dir is our part of the state directory.
	dir string
}

var _ interface {
	snapshot.Backend
	snapshot.Cloner
	snapshot.Limiter
	snapshot.LimitProber
	snapshot.Meter
	snapshot.Sweeper
	snapshot.Pender
	snapshot.Toucher
	snapshot.PairToucher
	snapshot.Drifter
} = (*Backend)(nil)

// Facts says what holds for all trees of this backend.
func (b *Backend) Facts() snapshot.Facts {
	return snapshot.Facts{
		Frozen: true, Flushes: true, Unit: snapshot.ByBlock, Durable: true, KeepsInodes: true,
		RealInodes: true, DirRename: true,
	}
}

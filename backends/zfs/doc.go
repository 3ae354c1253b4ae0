//go:build linux

// Package zfs stores snapshots and forks as ZFS snapshots and clones. Each takes constant time,
// whatever the size of the tree, and shares all unchanged blocks.
//
// # Trees
//
// A tree is a mounted dataset, or a directory inside one. For a directory the backend snapshots the
// whole dataset, and the view is the directory in the snapshot. A dataset mounted inside the tree
// is a tree of its own, and shows as an empty directory.
//
// # Where the data is
//
// A capture is a snapshot of the tree's own dataset. A fork is a clone in its child dataset
// .snapfs, so that it inherits the properties of the tree's dataset (compression, ACLs, a quota).
// The mount point is the exception: it is legacy, so that zfs(8) neither mounts the fork at boot
// nor unmounts it. A sealed fork is a snapshot of the clone.
//
//	tank/home@snapfs-<unique>               a capture
//	tank/home/.snapfs/<unique>              a fork
//	tank/home/.snapfs/<unique>@snapfs-<u…>  a sealed fork
//
// Each has the user property snapfs:mark with its own unique number, which the call that creates it
// sets. The backend destroys nothing without this mark. A snapshot of snapfs has a hold
// (zfs-hold(8)) with the tag snapfs.
//
// The state directory maps ids to datasets:
//
//	snapshots/<id>/{mark,tree}   tree is the mount point, read-only
//	forks/<id>/{mark,tree}
//	homes/<hash of a dataset>    .snapfs in that dataset belongs to snapfs
//	trash/                       removed entries, until Sweep destroys them
//
// A look-up mounts the view by mount(2), in the mount namespace of the caller. The mount of a fork
// lasts until the fork is removed. See docs/design/0010-zfs.md.
//
// # Reading the code
//
// Begin with [Backend] (zfs.go), dataDir (datadir.go), the open state directory, and mark (mark.go), the
// description of an entry. command.go is the only file that runs zfs(8), and quick.go the only one that
// calls the kernel in its place.
//
// The package knows neither the engine nor another backend; package zfsuser uses [States].
package zfs

//go:build linux

// Package btrfs stores snapshots and forks as btrfs subvolumes. Each costs one transaction commit,
// whatever the size of the tree, and shares all unchanged blocks.
//
// # Trees
//
// A tree is a subvolume, or a directory inside one. For a directory the backend snapshots the whole
// subvolume, and the view is the directory in the snapshot. Subvolumes nested in the tree are
// included; each is snapshotted separately, an instant later. Root can capture any subvolume, an
// ordinary user only subvolumes that the user owns.
//
// # Where the data is
//
// The data is in a subvolume .snapfs, mode 0700, on the tree's own filesystem: for root in the top
// directory of the mount, for another user in the topmost directory that the user owns. A snapshot
// shows a nested subvolume as an empty directory, so no sandbox sees the data of another, and
// writes in .snapfs are no changes of the tree. See [snapshot.Facts].
//
//	.snapfs/mark                     the ownership mark
//	.snapfs/<key>/                   the part of one state directory
//	  snapshots/<id>/{mark,tree}     tree is a read-only subvolume
//	  forks/<id>/{mark,tree}         tree is a writable subvolume
//	  stock/<id>/<n>/{mark,tree}     ready-made forks of the snapshot id
//	  latest/<hash of a path>        a link to the last snapshot of that tree
//	  trash/                         removed entries, until Sweep deletes them
//
// Each subvolume has a parent directory of its own, because subvolume creations in one directory
// are serialised, and those in different directories share a commit. An entry without tree is
// incomplete: only Remove and RemoveFork accept it. Where the tree has nested subvolumes, the entry has a
// file nested with their ancestors, so that changes in them are found after the fork that made them is gone.
//
// Mount the filesystem noatime, or at least the views: btrfs counts a new access time as a change,
// and [snapshot.ChangeLister] then lists every file that was read.
//
// # Reading the code
//
// Begin with [Backend] (btrfs.go), dataDir (datadir.go), the open .snapfs, and entry (entry.go), a
// snapshot or fork that is being made. scan.go finds changes by transaction numbers.
//
// The package knows neither the engine nor another backend; package pool uses it.
package btrfs

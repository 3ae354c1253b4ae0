//go:build linux

// Package store manages the records, the layers and the trash of the overlay backend.
//
// # Layout
//
//	lock                     shared by users of layers, exclusive for their removal
//	snapshots/<id>           a text file: its tree, its time and its layers
//	forks/<id>               a text file: the same, and the fork's upper layer
//	layers/<layer>/snapfs-1/ overlayfs's upperdir
//	layers/<layer>/work/     overlayfs's workdir, as long as a fork writes to the layer
//	layers/<layer>/unsettled the boot id of the boot in which the layer was sealed and not synced
//	layers/<layer>/merged    a symbolic link to a layer that replaces this one and all below it
//	layers/<layer>/remarking the files of the layer are being given a project id (see package quota)
//	tmp/                     layers that are being copied
//	spare/                   empty layers for new forks
//	old/                     files of removed records, for new records
//	trash/                   files and directories to delete
//	none/                    an empty directory, for overlays that need another lower
//
// A layer is created at its final place and never moves. Removing a snapshot or fork removes
// its record. Snapshots and forks share layers: [Store.Collect] takes the lock exclusively and
// moves layers that no record names into the trash.
//
// # Reading the code
//
// Begin with [Store] (store.go) and [Record] (record.go). Files and layers are reused
// (reuse.go, spare.go), because deleted inodes are expensive on ext4.
//
// The package does not mount, and does not know how overlayfs combines layers: see package
// diff.
package store

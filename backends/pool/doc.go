//go:build linux

// Package pool gives any Linux host a frozen base: a btrfs in a sparse file. A workspace is
// imported into it once, and later imports copy only changes. Forks are then btrfs subvolumes
// (see package btrfs, which this backend uses). A workspace can also be adopted: moved onto
// the pool and mounted at its old path, so that no further import is needed.
//
// Making, mounting and using a pool needs root.
//
// # Layout
//
//	<dir>/<pool>/pool.json             format, size, and UUID of the filesystem
//	<dir>/<pool>/image                 the filesystem, sparse
//	<dir>/<pool>/mnt/                  its mount point: noatime, user_subvol_rm_allowed
//	<dir>/<pool>/trees/<hash>.json     an imported or adopted workspace
//	<dir>/<pool>/trees/<hash>.lock     locked during changes of that workspace
//	<dir>/<pool>/pending/              operations that a killed process may have left incomplete
//	mnt/trees/<hash>/tree              the workspace's subvolume
//	mnt/trees/<hash>/manifest          the state it was copied from (see sync.go)
//	mnt/.snapfs                        the snapshots and forks
//	mnt/layers/<key>                   layers for trees on other filesystems (see package overlayquota)
//
// The loop device detaches itself with the mount, or with a killed process, so none is left
// over. After a reboot the first use of the pool mounts it and the adopted workspaces again.
//
// # Reading the code
//
// Begin with [Pool] (pool.go), backend (driver.go), which adds an update of the copy to the
// backend of package btrfs, and syncer (sync.go), which makes a directory equal to another.
// adopt.go and unadopt.go move a workspace onto a pool and back.
//
// The package knows package btrfs, but neither the engine nor another backend.
package pool

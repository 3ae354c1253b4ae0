// Package btrfs makes the ioctls of btrfs that libraries lack: subvolumes, snapshots, simple quotas,
// tree search and send. One call is one function; descriptors go in and out, nothing is cached.
// Sources: linux/btrfs.h, linux/btrfs_tree.h and fs/btrfs/ioctl.c.
package btrfs

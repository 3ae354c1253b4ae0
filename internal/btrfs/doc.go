// Package btrfs makes the ioctls of btrfs that libraries lack: subvolumes, snapshots, simple
// quotas, tree search and send. Each function makes one ioctl on an open descriptor; nothing
// is cached. Sources: linux/btrfs.h, linux/btrfs_tree.h and fs/btrfs/ioctl.c.
package btrfs

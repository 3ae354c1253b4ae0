// Package zfs makes ioctls of OpenZFS through /dev/zfs, with packed name-value pairs, where
// starting the program zfs(8) would be too slow. Sources: sys/fs/zfs.h and libzfs_core.
package zfs

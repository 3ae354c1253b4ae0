// Package zfs makes the ioctls of OpenZFS through /dev/zfs that the zfs program is too slow for, with
// the packed name-value pairs that they take. Sources: sys/fs/zfs.h and libzfs_core.
package zfs

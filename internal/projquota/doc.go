// Package projquota limits and counts what a directory tree uses by project quotas of ext4 and xfs
// (quotactl(2), ioctl_xfs_fsgetxattr).
package projquota

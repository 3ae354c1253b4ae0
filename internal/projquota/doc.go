// Package projquota limits and measures the usage of directory trees by project quotas of ext4
// and xfs (quotactl(2), ioctl_xfs_fsgetxattr).
package projquota

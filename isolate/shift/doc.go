//go:build linux

// Package shift shows a directory with other owners than it has on disk, by a FUSE
// filesystem: each user and group has a number that is higher by the same amount. It
// stands in for id-mapped mounts where a filesystem has none: ZFS before 2.2, an
// overlay, 9p.
//
// Nothing is kept here. What is made, written or renamed is made, written or renamed
// in the directory, at once and with the owners that belong on disk; only pages that a
// process has mapped wait until they are written back, at the latest when the
// filesystem is synced or its last mount goes.
//
// # What cannot be crossed
//
// Who uses the mount may be hostile, and this process is root. It never walks a path:
// each node is reached by a descriptor or a file handle of its own, each name is one
// component, looked up in its directory without following a link. The kernel checks
// permissions before it asks, against the owners that are shown. A user that has no
// number above, or none below, owns nothing and can be given nothing (EOVERFLOW), as
// with id-mapped mounts. What is created, is created with the caller's own ids on disk,
// so that inheritance and default ACLs are the filesystem's.
package shift

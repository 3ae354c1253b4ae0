//go:build linux

// Package idmap shows a directory with mapped ids through a FUSE filesystem: each user and
// group id appears higher by a constant than on disk. It replaces id-mapped mounts where a
// filesystem does not support them: ZFS before 2.2, an overlay, 9p. Read [Serve], server and
// table first. It knows nothing of sandboxes and snapshots.
//
// It stores nothing. Creating, writing and renaming happen in the directory at once, with the
// mapped owners. Only mapped pages wait until they are written back, at the latest when the
// filesystem is synced or its last mount goes.
//
// # Security
//
// The user of the mount may be hostile, and this process is root. It never walks a path: it
// reaches each inode by a descriptor or a file handle, and each name is one component, looked
// up in its directory without following a link. The kernel checks permissions, against the
// mapped owners, before it sends a request. A user whose id cannot be mapped owns nothing and
// can be given nothing (EOVERFLOW), as with id-mapped mounts. Files are created with the
// caller's own ids on disk, so inheritance and default ACLs are those of the filesystem.
package idmap

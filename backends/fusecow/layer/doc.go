//go:build linux

// Package layer is a copy-on-write filesystem: a read-only directory tree (the lower), frozen layers above it,
// and one layer on top that takes all changes. Package mount connects it to the kernel over FUSE.
//
// Changes of names and attributes are a table in memory and one log per layer on disk (package logfile). Only
// the content of changed files has files of its own, named by inode number. This is why creating, linking,
// renaming or removing an inode, even a large directory, touches no other file; why an ordinary user can store
// devices and owners; and why freezing a layer takes constant time. docs/design/0009-fusecow.md describes the
// format.
//
// Read [FS], the open filesystem, and inode and dirtyState, its table, first. The package knows nothing of
// snapshots and forks, nor of FUSE messages.
//
// The layer must be the only writer of what it shows, because the kernel may cache names, attributes and pages
// for as long as it likes. A change of the lower is visible only to lookups that the kernel has not cached.
package layer

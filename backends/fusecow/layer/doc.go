//go:build linux

// Package layer is a copy-on-write filesystem: a directory tree that is only
// read, frozen layers above it, and one layer on top that takes every change.
// The kernel reaches it over FUSE.
//
// What changed of names and attributes is a table in memory and, on disk, one
// log a layer; only the content of changed files has files of its own, named by
// inode. So making, linking, renaming or removing a node, a directory of any
// size included, touches no other file, an ordinary user can keep devices and
// owners, and freezing a layer takes the same time whatever it holds.
// docs/design/0009-fusecow.md has the form on disk.
//
// The layer must be the only writer of what it shows: the kernel is told to
// keep names, attributes and pages for as long as it likes. A change of the
// tree below is seen by what has not been looked up, and by nothing else.
package layer

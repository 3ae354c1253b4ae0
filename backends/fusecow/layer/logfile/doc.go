//go:build linux

// Package logfile reads and writes layer directories: the log of metadata changes, and the files with changed
// content. Each frame of the log takes effect wholly or not at all, so a crash leaves a state that existed.
// docs/design/0009-fusecow.md describes the format.
//
// Read [Layer], the open directory, and [Writer] and [Reader], which encode and decode its records, first. The
// package handles values only. It must not know the inode table of package layer, nor mounts, snapshots and
// forks.
package logfile

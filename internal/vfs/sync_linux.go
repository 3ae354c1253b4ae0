package vfs

import "golang.org/x/sys/unix"

// SyncFS writes all buffered data of the filesystem that holds the open file fd to disk, and waits for that
// (syncfs(2)).
func SyncFS(fd int) error { return unix.Syncfs(fd) }

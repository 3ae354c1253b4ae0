package vfs

import "golang.org/x/sys/unix"

// SyncFS writes everything buffered for the filesystem that holds fd.
func SyncFS(fd int) error { return unix.Syncfs(fd) }

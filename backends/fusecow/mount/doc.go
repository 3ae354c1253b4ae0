//go:build linux

// Package mount connects the filesystem of package layer to the kernel, over FUSE. Read [Server] and raw first.
// It knows nothing of logs and layers on disk.
//
// It is a package of its own because initialising go-fuse takes 0.3 ms at the start of a program, which only
// the program that serves should pay, not snapfs.
package mount

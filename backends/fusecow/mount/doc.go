//go:build linux

// Package mount has the kernel reach the filesystem of package layer, over FUSE. It is
// a package of its own because the library that it stands on does work whenever a
// program starts: 0.3 ms that `snapfs` does not pay, only the program that serves.
package mount

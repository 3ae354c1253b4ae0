//go:build !linux

package vfs

// SharedExtents returns an error that matches [errors.ErrUnsupported], since only Linux lists the extents of a file.
func SharedExtents(int) ([]Extent, error) { return nil, ErrNeedsLinux }

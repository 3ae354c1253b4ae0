//go:build !linux

package mount

import "github.com/snapfs/snapfs/internal/vfs"

// A Watch detects mounts and unmounts, on Linux. On this system it is a stub, which [NewWatch] never returns.
type Watch struct{}

// NewWatch starts to watch for mounts and unmounts, on Linux. Here it always returns an error.
func NewWatch() (*Watch, error) { return nil, vfs.ErrNeedsLinux }

// Changed reports whether any mount was added, removed or moved since the last call, on Linux. On this system
// it always returns true, so that a caller never relies on unchanged mounts.
func (*Watch) Changed() bool { return true }

// Close ends the watch for mounts and unmounts, on Linux. Here it does nothing.
func (*Watch) Close() {}

//go:build !linux

package mount

import "github.com/snapfs/snapfs/internal/vfs"

// A Watch detects mounts and unmounts, on Linux. On this system it is a stub, which [NewWatch] never returns.
type Watch struct{}

// NewWatch starts to watch for mounts and unmounts, on Linux. Here it always returns an error.
func NewWatch() (*Watch, error) { return nil, vfs.ErrNeedsLinux }

// Changed reports whether any mount may have been added, removed or moved since the last call. On this system
// it always returns true.
func (*Watch) Changed() bool { return true }

// Close ends the watch for mounts and unmounts, on Linux. Here it does nothing.
func (*Watch) Close() {}

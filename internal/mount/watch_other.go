//go:build !linux

package mount

import "github.com/snapfs/snapfs/internal/vfs"

// A Watch detects mounts and unmounts, on Linux.
type Watch struct{}

// NewWatch starts to watch for mounts and unmounts, on Linux. Here it always returns an error.
func NewWatch() (*Watch, error) { return nil, vfs.ErrNeedsLinux }

// Changed reports whether any mount may have been added, removed or moved since the last call.
func (*Watch) Changed() bool { return true }

// Close ends the watch for mounts and unmounts.
func (*Watch) Close() {}

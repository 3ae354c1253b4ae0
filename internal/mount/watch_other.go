//go:build !linux

package mount

import "github.com/snapfs/snapfs/internal/vfs"

// A Watch tells whether filesystems were mounted or unmounted: on Linux.
type Watch struct{}

// NewWatch begins to watch on Linux; here it only refuses.
func NewWatch() (*Watch, error) { return nil, vfs.ErrNeedsLinux }

// Changed reports whether any mount may have come, gone or moved.
func (*Watch) Changed() bool { return true }

// Close ends it.
func (*Watch) Close() {}

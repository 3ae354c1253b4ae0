//go:build !linux

package watch

import "github.com/snapfs/snapfs/internal/vfs"

// A Tree reports changes in a directory tree by any process, on Linux. On this system it is a stub, which
// [New] never returns.
type Tree struct{}

// New watches a directory tree for changes, on Linux. Here it always returns an error.
func New(string, func(path string) bool, int) (*Tree, error) { return nil, vfs.ErrNeedsLinux }

// Dir watches one directory for changes, on Linux. Here it always returns an error.
func Dir(string) (*Tree, error) { return nil, vfs.ErrNeedsLinux }

// Close ends the watch of a directory tree, on Linux. Here it does nothing.
func (*Tree) Close() {}

// Next waits for a change in the watched directory tree, on Linux. Here it always returns an error.
func (*Tree) Next() error { return vfs.ErrNeedsLinux }

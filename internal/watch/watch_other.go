//go:build !linux

package watch

import "github.com/snapfs/snapfs/internal/vfs"

// Tree reports changes in a directory tree by any process: added and removed names, written
// files, changed attributes. It misses writes through a memory mapping, and files of other
// mounts inside the tree.
//
// Root has one mark on the whole filesystem (fanotify(7), Linux 5.9) if its type supports
// that: not an overlay, FUSE, or a subvolume of btrfs. All others have a watch on each
// directory (inotify(7)).
type Tree struct{}

// New watches a directory tree, on Linux. Here it always returns an error.
func New(string, func(path string) bool, int) (*Tree, error) { return nil, vfs.ErrNeedsLinux }

// Dir watches one directory, on Linux. Here it always returns an error.
func Dir(string) (*Tree, error) { return nil, vfs.ErrNeedsLinux }

// Close ends the watch.
func (*Tree) Close() {}

// Next waits for a change in the tree, on Linux.
func (*Tree) Next() error { return vfs.ErrNeedsLinux }

//go:build !linux

package watch

import (
	"errors"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Tree tells that something in a directory tree was changed: on Linux.
type Tree struct{}

// ErrManyDirectories says that a tree has more directories than may be watched.
var ErrManyDirectories = errors.New("too many directories to watch")

// New watches a directory tree on Linux; here it only refuses.
func New(string, func(path string) bool, int) (*Tree, error) { return nil, vfs.ErrNeedsLinux }

// Close ends the watch.
func (*Tree) Close() {}

// Next waits until something was changed.
func (*Tree) Next() error { return vfs.ErrNeedsLinux }

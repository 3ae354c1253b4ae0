//go:build !linux

package kernel

import (
	"errors"
	"os"
	"time"
)

// A TreeWatch tells that something in a directory tree was changed: on Linux.
type TreeWatch struct{}

// ErrManyDirectories says that a tree has more directories than may be watched.
var ErrManyDirectories = errors.New("too many directories to watch")

// WatchTree watches a directory tree on Linux; here it only refuses.
func WatchTree(string, func(path string) bool, int) (*TreeWatch, error) { return nil, errLinux }

// Kind is how it watches.
func (*TreeWatch) Kind() string { return "" }

// Close ends the watch.
func (*TreeWatch) Close() {}

// Next waits until something was changed.
func (*TreeWatch) Next() error { return errLinux }

// A MountWatch tells whether filesystems were mounted or unmounted: on Linux.
type MountWatch struct{}

// WatchMounts begins to watch on Linux; here it only refuses.
func WatchMounts() (*MountWatch, error) { return nil, errLinux }

// Changed reports whether any mount may have come, gone or moved.
func (*MountWatch) Changed() bool { return true }

// Close ends it.
func (*MountWatch) Close() {}

// A Stream is what a descriptor leads to, looked at from beside: on Linux.
type Stream struct {
	// Coarse: the kernel tells its times in long steps.
	Coarse bool
}

// Observe looks at what a file leads to on Linux; here it only refuses.
func Observe(*os.File) (*Stream, error) { return nil, errLinux }

// Used is when somebody last wrote to it or read from it.
func (*Stream) Used() time.Time { return time.Time{} }

// Typed is when somebody last wrote to it.
func (*Stream) Typed() time.Time { return time.Time{} }

// Waiting is how many bytes wait in it to be read.
func (*Stream) Waiting() int { return 0 }

// Close stops looking.
func (*Stream) Close() {}

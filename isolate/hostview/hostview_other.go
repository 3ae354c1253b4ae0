//go:build !linux

package hostview

import (
	"context"
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Source is a directory of a container to show on the host. This is the stub for systems other than Linux,
// where no container has one.
type Source struct {
	Tree, Ended, Hold *os.File
	Base              uint32
	ReadOnly          bool
}

// Close closes the descriptors of s. On this system, other than Linux, none is ever open.
func (s *Source) Close() {}

// A Conn is a connection to the process that serves a view of a container's directory. This is the stub for
// systems other than Linux, which have no views.
type Conn struct{}

// OpenTree would open a directory of a container. It always fails, because only Linux has containers.
func OpenTree(int, string) (*os.File, uint32, error) { return nil, 0, vfs.ErrNeedsLinux }

// Start would mount a view of a container's directory. It always fails, because only Linux has containers.
func Start(context.Context, []string, string, string, string, *Source, int) error {
	return vfs.ErrNeedsLinux
}

// Dial would connect to the process that serves a view. It always fails, because only Linux has containers.
func Dial(string) (*Conn, error) { return nil, vfs.ErrNeedsLinux }

// Close would close the connection to the process of a view. It does nothing: only Linux has views.
func (c *Conn) Close() error { return nil }

// Leave would make a view close the container's directory. It always fails, because only Linux has views.
func (c *Conn) Leave() error { return vfs.ErrNeedsLinux }

// Enter would make a view show another container's directory. It always fails, because only Linux has views.
func (c *Conn) Enter(*Source) error { return vfs.ErrNeedsLinux }

// End would unmount a view of a container's directory and end its process. It always fails, because only
// Linux has views.
func (c *Conn) End() error { return vfs.ErrNeedsLinux }

// EndAt would end the process that serves a view of a container's directory. It does nothing: only Linux has
// views.
func EndAt(string) error { return nil }

// Unmount would unmount a view of a container's directory. It does nothing: only Linux has views.
func Unmount(context.Context, string) error { return nil }

// RemoveEmpty would remove the empty directories above a view of a container's directory. It does nothing:
// only Linux has views.
func RemoveEmpty(string) {}

// Alive would report whether a view of a container's directory is mounted and served. It returns false: only
// Linux has views.
func Alive(string) bool { return false }

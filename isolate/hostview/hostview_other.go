//go:build !linux

package hostview

import (
	"context"
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Source is a directory of a container to show on the host, as on Linux; here there is none.
type Source struct {
	Tree, Ended, Hold *os.File
	Base              uint32
}

// Close closes the descriptors of this process.
func (s *Source) Close() {}

// A Conn is a connection to the process that serves a view of a container's directory; here there is none.
type Conn struct{}

// OpenTree would open a directory of a container. It always fails, because only Linux has containers.
func OpenTree(int, string) (*os.File, uint32, error) { return nil, 0, vfs.ErrNeedsLinux }

// Start would mount a view of a container's directory. It always fails, because only Linux has containers.
func Start(context.Context, []string, string, string, string, *Source, int) error {
	return vfs.ErrNeedsLinux
}

// Dial would connect to the process that serves a view. It always fails, because only Linux has containers.
func Dial(string) (*Conn, error) { return nil, vfs.ErrNeedsLinux }

// Close does nothing.
func (c *Conn) Close() error { return nil }

// Leave always fails, because only Linux has views of a container's directory.
func (c *Conn) Leave() error { return vfs.ErrNeedsLinux }

// Enter always fails, because only Linux has views of a container's directory.
func (c *Conn) Enter(*Source) error { return vfs.ErrNeedsLinux }

// End always fails, because only Linux has views of a container's directory.
func (c *Conn) End() error { return vfs.ErrNeedsLinux }

// EndAt does nothing: there are no views.
func EndAt(string) error { return nil }

// Unmount does nothing: there are no views.
func Unmount(context.Context, string) error { return nil }

// RemoveEmpty does nothing: there are no views.
func RemoveEmpty(string) {}

// Alive reports that there is no view.
func Alive(string) bool { return false }

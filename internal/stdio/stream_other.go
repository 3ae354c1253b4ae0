//go:build !linux

package stdio

import (
	"os"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Stream observes the file behind a descriptor without opening it for input or output, so
// that the other end of a pipe sees no additional reader or writer. Linux only.
type Stream struct {
	// Coarse is set if the kernel updates the file's times only in long steps.
	Coarse bool
}

// Observe returns the stream of f, on Linux. Here it always returns an error.
func Observe(*os.File) (*Stream, error) { return nil, vfs.ErrNeedsLinux }

// Used returns the time of the last read or write, if the kernel records it: not for sockets,
// and not for anonymous pipes since Linux 6.15.
func (*Stream) Used() time.Time { return time.Time{} }

// Typed returns the time of the last write, which on the outer end of a terminal is that of
// the last key.
func (*Stream) Typed() time.Time { return time.Time{} }

// Waiting returns the number of unread bytes of a pipe, socket or terminal.
func (*Stream) Waiting() int { return 0 }

// Close ends the observation.
func (*Stream) Close() {}

//go:build !linux

package stdio

import (
	"os"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Stream observes the file behind a descriptor without opening it for input or output, on Linux. On this
// system it is a stub, which [Observe] never returns.
type Stream struct {
	// Coarse is set if the kernel updates the file's times only in long steps.
	Coarse bool
}

// Observe returns a Stream that observes the pipe, terminal or other file f, on Linux. Here it always returns
// an error.
func Observe(*os.File) (*Stream, error) { return nil, vfs.ErrNeedsLinux }

// Used returns the time of the last read or write of an observed pipe or terminal, on Linux. Here it returns
// the zero time.
func (*Stream) Used() time.Time { return time.Time{} }

// Typed returns the time of the last write to an observed pipe or terminal, on Linux. Here it returns the
// zero time.
func (*Stream) Typed() time.Time { return time.Time{} }

// Waiting returns the number of bytes that wait to be read from a pipe, socket or terminal, on Linux. Here it
// returns 0.
func (*Stream) Waiting() int { return 0 }

// Close ends the observation of the stream, on Linux. Here it does nothing.
func (*Stream) Close() {}

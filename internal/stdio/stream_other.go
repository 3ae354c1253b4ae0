//go:build !linux

package stdio

import (
	"os"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
)

// Stream observes the file behind a descriptor without opening it for input or output, so that
// the other end of a pipe sees no additional reader or writer. Linux only.
type Stream struct {
	// Coarse: the kernel tells its times in long steps.
	Coarse bool
}

// Observe returns the stream of f. The caller closes it; one of a socket before its peer is to
// see the end. On other systems than Linux it fails.
func Observe(*os.File) (*Stream, error) { return nil, vfs.ErrNeedsLinux }

// Used returns the time of the last read or write, if the kernel records it: not for sockets,
// and not for anonymous pipes since Linux 6.15.
func (*Stream) Used() time.Time { return time.Time{} }

// Typed returns the time of the last write; on the outer end of a terminal, of the last key.
func (*Stream) Typed() time.Time { return time.Time{} }

// Waiting returns the number of unread bytes of a pipe, socket or terminal.
func (*Stream) Waiting() int { return 0 }

// Close stops looking.
func (*Stream) Close() {}

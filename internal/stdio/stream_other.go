//go:build !linux

package stdio

import (
	"os"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Stream is what a descriptor leads to, looked at from beside: on Linux.
type Stream struct {
	// Coarse: the kernel tells its times in long steps.
	Coarse bool
}

// Observe looks at what a file leads to on Linux; here it only refuses.
func Observe(*os.File) (*Stream, error) { return nil, vfs.ErrNeedsLinux }

// Used is when somebody last wrote to it or read from it.
func (*Stream) Used() time.Time { return time.Time{} }

// Typed is when somebody last wrote to it.
func (*Stream) Typed() time.Time { return time.Time{} }

// Waiting is how many bytes wait in it to be read.
func (*Stream) Waiting() int { return 0 }

// Close stops looking.
func (*Stream) Close() {}

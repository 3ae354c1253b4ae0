//go:build !linux

package proc

import (
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
)

// SealedCopy returns an immutable copy of a program in memory, on Linux. Here it always
// returns an error.
func SealedCopy(string) (*os.File, error) { return nil, vfs.ErrNeedsLinux }

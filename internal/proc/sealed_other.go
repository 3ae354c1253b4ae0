//go:build !linux

package proc

import (
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
)

// SealedCopy is a copy of a file in memory that nobody can change, on Linux; here it only refuses.
func SealedCopy(string) (*os.File, error) { return nil, vfs.ErrNeedsLinux }

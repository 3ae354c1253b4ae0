//go:build !linux

package tun

import (
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
)

// Persist makes a TUN interface outlive its descriptor, on Linux. Here it always returns an error.
func Persist(*os.File) error { return vfs.ErrNeedsLinux }

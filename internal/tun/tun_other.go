//go:build !linux

package tun

import (
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
)

// Persist leaves a TUN device to its network namespace, on Linux; here it only refuses.
func Persist(*os.File) error { return vfs.ErrNeedsLinux }

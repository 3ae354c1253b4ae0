//go:build !linux

package standby

import "github.com/snapfs/snapfs/internal/vfs"

// redirect fails on every system but Linux, where snapfs has no supervisor processes.
func redirect(int, int) error { return vfs.ErrNeedsLinux }

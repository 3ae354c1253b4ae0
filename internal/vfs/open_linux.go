package vfs

import "golang.org/x/sys/unix"

// Flags of open(2) that other systems lack: there, constants of the same names hold substitutes.
const (
	// OPath is the flag that opens a file for stat, *at calls and links only, and not for its content
	// (O_PATH).
	OPath = unix.O_PATH
	// ONoatime leaves the access time as it is when reading (O_NOATIME). EPERM: another user's
	// file.
	ONoatime = unix.O_NOATIME
)

// Fionread is the ioctl that returns how many bytes wait to be read (FIONREAD of ioctl_tty(2), which package
// unix calls TIOCINQ).
const Fionread = unix.TIOCINQ // its other name is FIONREAD

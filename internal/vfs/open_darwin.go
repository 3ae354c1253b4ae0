package vfs

import "golang.org/x/sys/unix"

// Flags of open(2) that exist on Linux, and their nearest substitutes on this system.
const (
	// OPath opens a file for stat, *at calls and links only. On macOS it opens for reading
	// too, which needs that right; it does not follow a symbolic link, and does not wait for
	// the other end of a pipe.
	OPath = unix.O_RDONLY | unix.O_SYMLINK | unix.O_NONBLOCK
	// ONoatime leaves the access time as it is when reading; macOS has no such flag.
	ONoatime = 0
)

// Fionread is the ioctl that returns how many bytes wait to be read (FIONREAD of ioctl_tty(2), which package
// unix calls TIOCINQ).
const Fionread = 0x4004667f // FIONREAD of sys/filio.h

package vfs

import "golang.org/x/sys/unix"

// Flags of open(2) that not every system has.
const (
	// OPath opens the place and not the file: for stat, for names beneath, for links. Here it opens
	// for reading too, so that it takes the right to read, but a symbolic link itself and no pipe's end
	// is waited for.
	OPath = unix.O_RDONLY | unix.O_SYMLINK | unix.O_NONBLOCK
	// ONoatime leaves the time of the last read as it is; there is no such flag here.
	ONoatime = 0
)

// Fionread is FIONREAD of ioctl_tty(2), which package unix calls TIOCINQ.
const Fionread = 0x4004667f // FIONREAD of sys/filio.h

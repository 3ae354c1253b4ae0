package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// Duplicate returns a second descriptor of the open file f (dup(2)), with the same name. It is above those of the
// standard streams, even if they are closed. The caller closes it.
func Duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

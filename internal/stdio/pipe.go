package stdio

import (
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Unread returns the number of unread bytes in a pipe, given its reading end (FIONREAD).
func Unread(pipe *os.File) (int, error) {
	n, err := unix.IoctlGetInt(int(pipe.Fd()), vfs.Fionread)
	return n, os.NewSyscallError("ioctl", err)
}

// ReadOnly reports whether a file was opened for reading only, as the reading end of a pipe is.
func ReadOnly(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDONLY
}

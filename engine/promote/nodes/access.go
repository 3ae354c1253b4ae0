package nodes

import (
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// OpenAbove opens the parent directory of the open directory root with O_PATH. The caller closes it.
func OpenAbove(root *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(root.Fd()), "..", vfs.OPath|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "..", Err: err}
	}
	return os.NewFile(uintptr(fd), ".."), nil
}

// CheckWritable returns an error matching EROFS if the filesystem or mount of the open directory root is read-only.
func CheckWritable(root *os.File) error {
	if unix.Faccessat(int(root.Fd()), ".", unix.W_OK, unix.AT_EACCESS) == unix.EROFS {
		return &os.PathError{Op: "write", Path: root.Name(), Err: unix.EROFS}
	}
	return nil
}

// Writable reports whether this process may add and remove names in the open directory dir.
func Writable(dir *os.File) bool {
	return unix.Faccessat(int(dir.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
}

package diff

import (
	"errors"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// openFile opens name in dir for reading, without an update of its access time if the kernel
// permits that. The caller closes the descriptor.
func openFile(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags|vfs.ONoatime, 0)
	if err == unix.EPERM {
		fd, err = unix.Openat(dir, name, flags, 0)
	}
	return fd, err
}

// openSame opens the file name in dir; the caller closes it. Error: ESTALE if it is no longer
// the regular file that st describes.
func openSame(dir int, name string, st *vfs.Stat) (int, error) {
	fd, err := openFile(dir, name)
	if err != nil {
		return -1, err
	}
	now, err := vfs.Lstat(fd, "")
	if err == nil && (!now.IsRegular() || now.Ino != st.Ino || now.Dev != st.Dev) {
		err = unix.ESTALE
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func readlink(dir int, name string, size int64) (string, error) {
	buf := make([]byte, size+1)
	for {
		n, err := unix.Readlinkat(dir, name, buf)
		if err != nil {
			return "", err
		}
		if n < len(buf) {
			return string(buf[:n]), nil
		}
		buf = make([]byte, 2*len(buf))
	}
}

// errno returns the number of the system call error that err wraps, or 0 if it wraps none.
func errno(err error) unix.Errno {
	var e unix.Errno
	errors.As(err, &e)
	return e
}

// gone reports whether an error means that a node does not exist any more, or was replaced by one of another
// type.
func gone(err error) bool {
	switch errno(err) {
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ESTALE:
		return true
	}
	return false
}

func denied(err error) bool { e := errno(err); return e == unix.EACCES || e == unix.EPERM }

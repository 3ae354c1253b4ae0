package diff

import (
	"errors"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// openFile opens the file name in the directory dir, of one of the compared trees, for reading. The access
// time stays as it is if the kernel permits that. The caller closes the descriptor.
func openFile(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags|vfs.ONoatime, 0)
	if err == unix.EPERM {
		fd, err = unix.Openat(dir, name, flags, 0)
	}
	return fd, err
}

// openSame opens the file name in the directory dir, of one of the compared trees; the caller closes it.
// Error: ESTALE if it is no longer the regular file that st describes.
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

// errno returns the number of the system call error that err, an error of reading a tree, wraps; 0 if it
// wraps none.
func errno(err error) unix.Errno {
	var e unix.Errno
	errors.As(err, &e)
	return e
}

// gone reports whether an error of comparing a path means that the file does not exist any more, or was
// replaced by one of another type, so that it must be compared again.
func gone(err error) bool {
	switch errno(err) {
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ESTALE:
		return true
	}
	return false
}

func denied(err error) bool { e := errno(err); return e == unix.EACCES || e == unix.EPERM }

package vfs

import "golang.org/x/sys/unix"

// macOS has no calls for the attributes of a name under a descriptor: the node is
// opened, itself where it is a link, which takes the right to read it.

// SetXattr sets the extended attribute attr of the file name in dirfd; flags may be unix.XATTR_CREATE or
// unix.XATTR_REPLACE.
func SetXattr(dirfd int, name, attr string, value []byte, flags int) error {
	err := onNode(dirfd, name, func(fd int) error { return unix.Fsetxattr(fd, attr, value, flags) })
	return xattrError("setxattr", name, attr, err)
}

// RemoveXattr removes the extended attribute attr of the file name in dirfd. unix.ENODATA: no such attribute.
func RemoveXattr(dirfd int, name, attr string) error {
	err := onNode(dirfd, name, func(fd int) error { return noData(unix.Fremovexattr(fd, attr)) })
	return xattrError("removexattr", name, attr, err)
}

func xattrReadInto(dirfd int, name, attr string, buf []byte) (n int, err error) {
	err = onNode(dirfd, name, func(fd int) (err error) {
		if attr == "" {
			n, err = unix.Flistxattr(fd, buf)
		} else {
			n, err = unix.Fgetxattr(fd, attr, buf)
		}
		return noData(err)
	})
	return n, err
}

// noData translates macOS's error for a missing attribute (ENOATTR) to ENODATA, as on Linux.
func noData(err error) error {
	if err == unix.ENOATTR {
		return unix.ENODATA
	}
	return err
}

func onNode(dirfd int, name string, f func(fd int) error) error {
	if name == "" {
		return f(dirfd)
	}
	fd, err := openUninterrupted(dirfd, name, OPath|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return f(fd)
}

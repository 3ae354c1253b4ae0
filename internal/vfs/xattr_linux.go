package vfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Linux 6.13 has calls for the attributes of a name under a descriptor; before it, the node is
// opened with O_PATH and reached through /proc.

// SetXattr sets the extended attribute attr of the file name in dirfd; flags may be unix.XATTR_CREATE or
// unix.XATTR_REPLACE.
func SetXattr(dirfd int, name, attr string, value []byte, flags int) error {
	args := xattrArgs{value: unsafe.Pointer(unsafe.SliceData(value)), size: uint32(len(value)), flags: uint32(flags)}
	_, err := xattrat(unix.SYS_SETXATTRAT, dirfd, name, attr, unsafe.Pointer(&args), unsafe.Sizeof(args))
	if needsProc(err) {
		err = throughProc(dirfd, name, func(path string) error { return unix.Setxattr(path, attr, value, flags) })
	}
	return xattrError("setxattr", name, attr, err)
}

// RemoveXattr removes the extended attribute attr of the file name in dirfd. unix.ENODATA: no such attribute.
func RemoveXattr(dirfd int, name, attr string) error {
	_, err := xattrat(unix.SYS_REMOVEXATTRAT, dirfd, name, attr, nil, 0)
	if needsProc(err) {
		err = throughProc(dirfd, name, func(path string) error { return unix.Removexattr(path, attr) })
	}
	return xattrError("removexattr", name, attr, err)
}

func xattrReadInto(dirfd int, name, attr string, buf []byte) (n int, err error) {
	if attr == "" {
		n, err = xattrat(unix.SYS_LISTXATTRAT, dirfd, name, "", unsafe.Pointer(&buf[0]), uintptr(len(buf)))
	} else {
		args := xattrArgs{value: unsafe.Pointer(&buf[0]), size: uint32(len(buf))}
		n, err = xattrat(unix.SYS_GETXATTRAT, dirfd, name, attr, unsafe.Pointer(&args), unsafe.Sizeof(args))
	}
	if needsProc(err) {
		err = throughProc(dirfd, name, func(path string) (err error) {
			if attr == "" {
				n, err = unix.Listxattr(path, buf)
			} else {
				n, err = unix.Getxattr(path, attr, buf)
			}
			return err
		})
	}
	return n, err
}

// xattrArgs is struct xattr_args of linux/xattr.h on a 64-bit machine, which the calls setxattrat and
// getxattrat take. The value is a real pointer, so that Go adjusts it when it moves a stack.
type xattrArgs struct {
	value unsafe.Pointer
	size  uint32
	flags uint32
}

// xattrat makes the system call numbered call: setxattrat, getxattrat, listxattrat or removexattrat, on name
// in dirfd. p and size are the buffer or the struct xattr_args that the call takes. Only listxattrat takes no
// attr.
func xattrat(call uintptr, dirfd int, name, attr string, p unsafe.Pointer, size uintptr) (int, error) {
	path, err := unix.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	flags := uintptr(unix.AT_SYMLINK_NOFOLLOW)
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var n uintptr
	var errno unix.Errno
	if call == unix.SYS_LISTXATTRAT {
		n, _, errno = unix.Syscall6(call, uintptr(dirfd), uintptr(unsafe.Pointer(path)), flags, uintptr(p), size, 0)
	} else {
		key, err := unix.BytePtrFromString(attr)
		if err != nil {
			return -1, err
		}
		n, _, errno = unix.Syscall6(call, uintptr(dirfd), uintptr(unsafe.Pointer(path)), flags,
			uintptr(unsafe.Pointer(key)), uintptr(p), size)
	}
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// needsProc reports whether an attribute call that failed with err must be repeated through a path in /proc,
// because the kernel lacks the *xattrat calls (ENOSYS) or dirfd itself is an O_PATH descriptor (EBADF).
func needsProc(err error) bool { return err == unix.ENOSYS || err == unix.EBADF }

// throughProc calls f with a path in /proc that names the file name in dirfd, for attribute calls that take
// only a path. The kernel follows the /proc path to the file itself, but if the file is a symbolic link, not
// on to its target.
func throughProc(dirfd int, name string, f func(path string) error) error {
	if name == "" {
		return f(PathTo(dirfd))
	}
	fd, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return f(PathTo(fd))
}

package vfs

import (
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What is done to a node that is named by its directory, or that is open; OPath will do.

// MakeNode makes a fifo, socket or device named name in the directory dirfd (mknodat(2)). mode holds its type
// and permissions, dev the number of a device.
func MakeNode(dirfd int, name string, mode uint32, dev uint64) error {
	return unix.Mknodat(dirfd, name, mode, int(dev))
}

// SetOwner sets the owner and group of an open file to the numeric ids.
func SetOwner(fd, uid, gid int) error { return unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH) }

// SetTimes sets the access and modification times of an open file (futimens(3)); a nil access leaves the
// access time unchanged.
func SetTimes(fd int, access *Timestamp, modified Timestamp) error {
	times := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: modified.Sec, Nsec: int64(modified.Nsec)}}
	if access != nil {
		times[0] = unix.Timespec{Sec: access.Sec, Nsec: int64(access.Nsec)}
	}
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	switch errno {
	case 0:
		return nil
	case unix.EBADF: // it is open as a place only
		return unix.UtimesNanoAt(unix.AT_FDCWD, PathTo(fd), times[:], 0)
	}
	return errno
}

// Readlink reads the target of the symbolic link name in dirfd into buf, or of dirfd itself if
// name is empty, and returns its length.
func Readlink(dirfd int, name string, buf []byte) (int, error) {
	return unix.Readlinkat(dirfd, name, buf)
}

// PathOf returns the present path of the file that f has open, as seen by this process.
func PathOf(f *os.File) (string, error) {
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

// CopyRange copies up to n bytes from src to dst, at the same offset at of both, in the kernel
// (copy_file_range(2)), and returns the number copied. The errors EXDEV, EINVAL, EOPNOTSUPP and ENOSYS mean
// that the kernel cannot copy between these files.
func CopyRange(dst, src int, at int64, n int) (int, error) {
	from, to := at, at
	return unix.CopyFileRange(src, &from, dst, &to, n, 0)
}

// CloneFD makes the empty file dst share all blocks of src, as [CloneFile] does, for bare descriptors. It
// returns the bare error number.
func CloneFD(dst, src int) error { return unix.IoctlFileClone(dst, src) }

// CloneRange makes n bytes of dst, at the offset to, share disk blocks with n bytes of src, at the offset
// from. The errors EXDEV, EOPNOTSUPP, EINVAL and ENOTTY mean that these files cannot share blocks.
func CloneRange(dst, src *os.File, to, from, n int64) error {
	err := unix.IoctlFileCloneRange(int(dst.Fd()), &unix.FileCloneRange{
		Src_fd: int64(src.Fd()), Src_offset: uint64(from), Src_length: uint64(n), Dest_offset: uint64(to),
	})
	runtime.KeepAlive(src)
	return err
}

// PunchHole turns n bytes of a file at the offset at into a hole, which frees their disk space; the file's
// size stays (fallocate(2)). EOPNOTSUPP and ENOSYS: the filesystem does not support it.
func PunchHole(f *os.File, at, n int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
	runtime.KeepAlive(f)
	return err
}

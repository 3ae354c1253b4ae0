package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// What is done to a node that is named by its directory, or that is open.

// MakeNode makes a fifo or device named name in the directory dirfd; mode holds its type and permissions, dev
// the number of a device. macOS has no mknodat(2), so MakeNode uses the directory's present path.
func MakeNode(dirfd int, name string, mode uint32, dev uint64) error {
	path := pathOf(dirfd)
	switch {
	case path == "":
		return unix.ENOENT
	case mode&unix.S_IFMT == unix.S_IFIFO:
		return unix.Mkfifo(path+"/"+name, mode&^unix.S_IFMT)
	}
	return unix.Mknod(path+"/"+name, mode, int(dev))
}

// SetOwner sets the owner and group of an open file to the numeric ids (fchown(2)).
func SetOwner(fd, uid, gid int) error { return unix.Fchown(fd, uid, gid) }

// SetTimes sets the access and modification times of an open file; a nil access leaves the access time
// unchanged. It works by the file's present path, because macOS rounds times set by descriptor to
// microseconds.
func SetTimes(fd int, access *Timestamp, modified Timestamp) error {
	if access == nil {
		st, err := Lstat(fd, "")
		if err != nil {
			return err
		}
		access = &st.ATime
	}
	times := []unix.Timespec{{Sec: access.Sec, Nsec: int64(access.Nsec)}, {Sec: modified.Sec, Nsec: int64(modified.Nsec)}}
	return unix.UtimesNanoAt(unix.AT_FDCWD, pathOf(fd), times, unix.AT_SYMLINK_NOFOLLOW)
}

// Readlink reads the target of the symbolic link name in dirfd into buf, or of dirfd itself if
// name is empty, and returns its length.
func Readlink(dirfd int, name string, buf []byte) (int, error) {
	if name == "" {
		return unix.Readlink(pathOf(dirfd), buf)
	}
	return unix.Readlinkat(dirfd, name, buf)
}

// PathOf returns the present path of the file that f has open, as seen by this process.
func PathOf(f *os.File) (string, error) {
	if path := pathOf(int(f.Fd())); path != "" {
		return path, nil
	}
	return "", &os.PathError{Op: "F_GETPATH", Path: f.Name(), Err: unix.ENOENT}
}

// PathTo returns the present path of the file that the descriptor fd has open, for system calls that take no
// descriptor, as [FDPath] does for an *os.File.
func PathTo(fd int) string { return pathOf(fd) }

// CopyRange copies bytes between two files in the kernel, on Linux. On macOS it returns ENOSYS, and the
// caller copies them itself.
func CopyRange(int, int, int64, int) (int, error) { return 0, unix.ENOSYS }

// CloneFD makes a file share all blocks of another one, on Linux. On macOS, which clones only to a new name,
// it returns ENOTSUP.
func CloneFD(int, int) error { return unix.ENOTSUP }

// CloneRange makes ranges of two files share disk blocks, on Linux. On macOS it returns EOPNOTSUPP, and the
// caller copies the data.
func CloneRange(_, _ *os.File, _, _, _ int64) error { return unix.EOPNOTSUPP }

// PunchHole turns bytes of a file into a hole, which frees their disk space, on Linux. On macOS it returns
// EOPNOTSUPP.
func PunchHole(*os.File, int64, int64) error { return unix.EOPNOTSUPP }

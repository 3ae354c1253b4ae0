package vfs

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the earliest time that the kernel would stamp on a file changed from now on. The
// kernel stamps with its coarse clock, which advances every few milliseconds, so a file
// changed just before may have the same time. time.Now can be later than both.
func Now() time.Time {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts) != nil {
		return time.Now()
	}
	return time.Unix(ts.Unix())
}

// Lstat returns the attributes of name in dirfd, or of dirfd if name is empty; dirfd may be
// unix.AT_FDCWD. It does not follow a symbolic link and triggers no automount. Errors are
// *os.PathError. Cost: one system call.
func Lstat(dirfd int, name string) (Stat, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	const mask = unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID
	var x unix.Statx_t
	if err := unix.Statx(dirfd, name, flags, mask, &x); err != nil {
		return Stat{}, &os.PathError{Op: "statx", Path: name, Err: err}
	}
	return fromStatx(&x), nil
}

func fromStatx(x *unix.Statx_t) Stat {
	s := Stat{
		Mode: uint32(x.Mode), UID: x.Uid, GID: x.Gid, Nlink: x.Nlink,
		Size: int64(x.Size), Blocks: int64(x.Blocks), Ino: x.Ino,
		Dev:   unix.Mkdev(x.Dev_major, x.Dev_minor),
		Rdev:  unix.Mkdev(x.Rdev_major, x.Rdev_minor),
		ATime: Timestamp{x.Atime.Sec, x.Atime.Nsec},
		MTime: Timestamp{x.Mtime.Sec, x.Mtime.Nsec},
		CTime: Timestamp{x.Ctime.Sec, x.Ctime.Nsec},
	}
	if x.Mask&unix.STATX_BTIME != 0 {
		s.BTime = Timestamp{x.Btime.Sec, x.Btime.Nsec}
	}
	if x.Mask&unix.STATX_MNT_ID != 0 {
		s.Mount = x.Mnt_id
	}
	s.MountRoot = x.Attributes&x.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0
	s.Fixed = x.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0
	return s
}

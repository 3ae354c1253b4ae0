package vfs

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time that a file changed now is stamped with. The kernel stamps
// files by its coarse clock, which moves a few times in a hundredth of a second,
// or by a finer one where somebody looks (Linux 6.13); time.Now can be ahead of
// both. So what is written from here on has this time or a later one, and so may
// have what was written within the same tick before.
func Now() time.Time {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts) != nil {
		return time.Now()
	}
	return time.Unix(ts.Unix())
}

// Lstat describes name under dirfd (which may be unix.AT_FDCWD), itself where
// it is a symbolic link; an empty name means dirfd. It triggers no automount.
// Errors are *os.PathError. Cost: one system call.
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

package vfs

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns an instant that separates earlier from later changes of files: a file changed after the call
// gets this change time or a later one, and a file changed before it an earlier one. The second half needs a
// kernel with multigrain timestamps (Linux 6.13). On an older kernel, a change shortly before the call,
// within the same tick of the kernel's clock, may have the same time.
func Now() time.Time {
	if t, ok := fineNow(); ok {
		return t
	}
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts) != nil {
		return time.Now()
	}
	return time.Unix(ts.Unix())
}

// fineNow makes the kernel take a fine-grained timestamp, before which no later change on any filesystem is
// dated. To do so it reads the change time of a file in memory and then changes the file again. It returns
// false if the kernel has no such timestamps. Cost: five system calls.
func fineNow() (time.Time, bool) {
	fd, err := unix.MemfdCreate("snapfs-clock", unix.MFD_CLOEXEC)
	if err != nil {
		return time.Time{}, false
	}
	defer unix.Close(fd)
	for range 3 { // a tick of the clock between the first two calls defeats them
		if _, err := Lstat(fd, ""); err != nil {
			return time.Time{}, false
		}
		before := time.Now()
		if err := unix.Fchmod(fd, 0o600); err != nil {
			return time.Time{}, false
		}
		st, err := Lstat(fd, "")
		if err != nil {
			return time.Time{}, false
		}
		if !st.CTime.Time().Before(before) {
			return before.Round(0), true
		}
	}
	return time.Time{}, false
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

package kernel

import (
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Timestamp is an instant as filesystems keep it. Two are equal with ==.
type Timestamp struct {
	// Sec is seconds since 1970, negative before.
	Sec int64
	// Nsec is 0 to 999999999.
	Nsec uint32
}

// Time converts it, in the local zone.
func (t Timestamp) Time() time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// After reports whether t is later than u.
func (t Timestamp) After(u Timestamp) bool {
	return t.Sec > u.Sec || t.Sec == u.Sec && t.Nsec > u.Nsec
}

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

// Stat is what statx(2) tells about a node.
type Stat struct {
	// Mode holds the type (unix.S_IFMT) and the permission bits.
	Mode     uint32
	UID, GID uint32
	Nlink    uint32
	// Size in bytes; Blocks are those allocated, of 512 bytes each.
	Size, Blocks int64
	Ino          uint64
	// Dev and Rdev as unix.Mkdev makes them.
	Dev, Rdev           uint64
	ATime, MTime, CTime Timestamp
	// BTime is when the inode was made; zero where the filesystem keeps none.
	BTime Timestamp
	// Mount is the mount's id as mountinfo has it; zero before Linux 5.8.
	Mount uint64
	// MountRoot: the node is the root of a mount. False before Linux 5.8.
	MountRoot bool
	// Fixed: it is immutable or append-only (chattr +i, +a), and may not even be
	// renamed by root.
	Fixed bool
}

// IsDir reports whether the node is a directory.
func (s *Stat) IsDir() bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }

// IsRegular reports whether the node is a regular file.
func (s *Stat) IsRegular() bool { return s.Mode&unix.S_IFMT == unix.S_IFREG }

// IsSymlink reports whether the node is a symbolic link.
func (s *Stat) IsSymlink() bool { return s.Mode&unix.S_IFMT == unix.S_IFLNK }

// IsWhiteout reports whether the node is how overlayfs keeps a deletion in an
// upper layer: a character device 0:0.
func (s *Stat) IsWhiteout() bool { return s.Mode&unix.S_IFMT == unix.S_IFCHR && s.Rdev == 0 }

// FileMode converts the type and the permission bits.
func (s *Stat) FileMode() fs.FileMode {
	mode := fs.FileMode(s.Mode & 0o777)
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	if s.Mode&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if s.Mode&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if s.Mode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
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

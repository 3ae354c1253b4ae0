package vfs

import (
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Timestamp is a file time with nanoseconds. Equal times compare equal with ==.
type Timestamp struct {
	// Sec is seconds since 1970, negative before.
	Sec int64
	// Nsec is 0 to 999999999.
	Nsec uint32
}

// Time converts the timestamp to a time.Time in the local zone.
func (t Timestamp) Time() time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// After reports whether the file time t is later than u.
func (t Timestamp) After(u Timestamp) bool {
	return t.Sec > u.Sec || t.Sec == u.Sec && t.Nsec > u.Nsec
}

// Stat holds the attributes of a file that statx(2), or fstatat(2) on macOS, returns. [Lstat] makes it.
type Stat struct {
	// Mode holds the file type (unix.S_IFMT) and the permission bits.
	Mode     uint32
	UID, GID uint32
	Nlink    uint32
	// Size is in bytes; Blocks counts allocated blocks of 512 bytes.
	Size, Blocks int64
	Ino          uint64
	// Dev and Rdev are device numbers in the form of unix.Mkdev.
	Dev, Rdev           uint64
	ATime, MTime, CTime Timestamp
	// BTime is the time the inode was created; zero if the filesystem stores none.
	BTime Timestamp
	// Mount is the mount id, as in mountinfo; zero before Linux 5.8. On macOS, where each
	// mount has a device number, it is Dev.
	Mount uint64
	// MountRoot is set if the file is the root of a mount. Always false before Linux 5.8 and
	// on other systems.
	MountRoot bool
	// Fixed is set if the file is immutable or append-only (chattr +i, +a; chflags on macOS):
	// not even root may rename it.
	Fixed bool
}

// changeResolution is the age from which on a file's change time is certainly earlier than that of any later
// change, because the clocks of filesystems advance at least every hundredth of a second. coarseResolution is that age
// on a filesystem that stores times in seconds, such as ext4 with inodes of 128 bytes.
const (
	changeResolution = 50 * time.Millisecond
	coarseResolution = 2*time.Second + changeResolution
)

// ChangedBefore reports whether the change or modification time t of a file proves that its last change came before
// instant, a time of the clock that stamps files. See [Coarseness] for filesystems that store only seconds.
func ChangedBefore(t, instant time.Time) bool { return t.Add(Coarseness(t)).Before(instant) }

// Coarseness returns by how much the last change of a file may be later than its time t: two seconds if t has no
// nanoseconds, since its filesystem may store only seconds, else 0.
func Coarseness(t time.Time) time.Duration {
	if t.Nanosecond() == 0 {
		return coarseResolution - changeResolution
	}
	return 0
}

// Settled reports whether s, read at the instant at or later, proves that the file is unchanged while its inode
// and change time stay the same. A change time without nanoseconds is taken for one of a filesystem that stores
// only seconds.
func (s *Stat) Settled(at time.Time) bool {
	return at.Sub(s.CTime.Time()) > changeResolution+Coarseness(s.CTime.Time())
}

// IsDir reports whether the file is a directory.
func (s *Stat) IsDir() bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }

// IsRegular reports whether the file is a regular file.
func (s *Stat) IsRegular() bool { return s.Mode&unix.S_IFMT == unix.S_IFREG }

// IsSymlink reports whether the file is a symbolic link.
func (s *Stat) IsSymlink() bool { return s.Mode&unix.S_IFMT == unix.S_IFLNK }

// IsWhiteout reports whether the file is an overlayfs whiteout, a character device 0:0, which
// marks a deletion in an upper layer.
func (s *Stat) IsWhiteout() bool { return s.Mode&unix.S_IFMT == unix.S_IFCHR && s.Rdev == 0 }

// FileMode returns the file's type and permission bits in the form of package io/fs.
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

// IsPrivate reports whether the path leads to a directory, and not by a symbolic link at its end, that belongs to this
// user and that no other one may write to. So nobody else has stored a file there.
func IsPrivate(path string) bool {
	st, err := Lstat(unix.AT_FDCWD, path)
	return err == nil && st.IsDir() && st.Mode&0o022 == 0 && int(st.UID) == os.Geteuid()
}

// MakePrivate makes the directory path, with its parents, unless it exists. The error matches [fs.ErrPermission] if
// [IsPrivate] is false for an existing one, which then stays as it is.
func MakePrivate(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	if !IsPrivate(path) {
		return &fs.PathError{Op: "mkdir", Path: path, Err: fs.ErrPermission}
	}
	return nil
}

package vfs

import (
	"io/fs"
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

// Stat is what statx(2), or the system's like of it, tells about a node.
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
	// Mount is the mount's id as mountinfo has it; zero before Linux 5.8. On macOS,
	// where each mount is a device, it is Dev.
	Mount uint64
	// MountRoot: the node is the root of a mount. False before Linux 5.8,
	// and on other systems.
	MountRoot bool
	// Fixed: it is immutable or append-only (chattr +i, +a; chflags on macOS), and may not even be
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

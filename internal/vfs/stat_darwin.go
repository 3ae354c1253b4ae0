package vfs

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time that the filesystem would stamp on a file changed now. On APFS that is
// time.Now.
func Now() time.Time { return time.Now() }

// Lstat returns the attributes of name in dirfd, or of dirfd if name is empty; dirfd may be
// unix.AT_FDCWD. It does not follow a symbolic link. Errors are *os.PathError. Cost: one
// system call.
func Lstat(dirfd int, name string) (Stat, error) {
	var x unix.Stat_t
	var err error
	if name == "" {
		err = unix.Fstat(dirfd, &x)
	} else {
		err = unix.Fstatat(dirfd, name, &x, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return Stat{}, &os.PathError{Op: "fstatat", Path: name, Err: err}
	}
	return fromStat(&x), nil
}

func fromStat(x *unix.Stat_t) Stat {
	const fixed = unix.UF_IMMUTABLE | unix.UF_APPEND | unix.SF_IMMUTABLE | unix.SF_APPEND
	at := func(t unix.Timespec) Timestamp { return Timestamp{t.Sec, uint32(t.Nsec)} }
	return Stat{
		Mode: uint32(x.Mode), UID: x.Uid, GID: x.Gid, Nlink: uint32(x.Nlink),
		Size: x.Size, Blocks: x.Blocks, Ino: x.Ino,
		Dev: uint64(uint32(x.Dev)), Rdev: uint64(uint32(x.Rdev)), // as unix.Mkdev makes them here
		ATime: at(x.Atim), MTime: at(x.Mtim), CTime: at(x.Ctim), BTime: at(x.Btim),
		Mount: uint64(uint32(x.Dev)), Fixed: x.Flags&fixed != 0,
	}
}

package vfs

import "golang.org/x/sys/unix"

// How [RenameAt] treats a name that is there: RenameNoReplace gives EEXIST, and
// RenameExchange has the two change places, at once.
const (
	RenameNoReplace = unix.RENAME_NOREPLACE
	RenameExchange  = unix.RENAME_EXCHANGE
)

// RenameAt is renameat2(2). EINVAL: the filesystem knows no such flag.
func RenameAt(fromDir int, from string, toDir int, to string, flags uint) error {
	return unix.Renameat2(fromDir, from, toDir, to, flags)
}

// RenameNew renames old to new, and returns unix.EEXIST if new exists. On Linux it uses
// renameat2(2) with RENAME_NOREPLACE (Linux 3.15; ext4, btrfs, xfs, tmpfs, overlayfs); on a
// filesystem without it (ZFS before 2.2: EINVAL) it links a file to its new name first, and
// renames a directory, which can replace nothing but an empty directory made at the same
// instant. On macOS it works on APFS and HFS+, elsewhere ENOTSUP.
func RenameNew(old, new string) error {
	err := unix.Renameat2(unix.AT_FDCWD, old, unix.AT_FDCWD, new, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL {
		return renameByHand(old, new)
	}
	return err
}

// Replace renames next over the existing file path; without one the error is unix.ENOENT, so
// that a removed file does not come back. At any time, also after a crash, path is the old
// file or the new one. The old file is at next afterwards or deleted. On a filesystem that
// cannot exchange names (ZFS before 2.2) a file removed at the same instant may come back:
// callers that remove and that replace must exclude each other.
func Replace(next, path string) error {
	err := unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
	if err == unix.EINVAL {
		return replaceByHand(next, path)
	}
	return err
}

func replaceByHand(next, path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err
	}
	return unix.Rename(next, path)
}

func renameByHand(old, new string) error {
	var st unix.Stat_t
	if err := unix.Lstat(old, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if err := unix.Link(old, new); err != nil {
			return err
		}
		return unix.Unlink(old)
	}
	if unix.Lstat(new, &st) == nil {
		return unix.EEXIST
	}
	err := unix.Rename(old, new)
	if err == unix.ENOTEMPTY || err == unix.ENOTDIR { // made since
		return unix.EEXIST
	}
	return err
}

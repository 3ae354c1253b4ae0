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

// RenameNew renames old to new, and gives unix.EEXIST where new is there
// already: renameat2(2) with RENAME_NOREPLACE, Linux 3.15, on ext4, btrfs, xfs,
// tmpfs and overlayfs. A filesystem without it (ZFS before 2.2 answers EINVAL) has
// a directory renamed that is never put in the place of anything but an empty
// directory made at the same instant, and a file linked to its new name first.
func RenameNew(old, new string) error {
	err := unix.Renameat2(unix.AT_FDCWD, old, unix.AT_FDCWD, new, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL {
		return renameByHand(old, new)
	}
	return err
}

// Replace renames next to path where something has that name, and gives unix.ENOENT
// where nothing has: what somebody removed does not come back. At path there is the old one or the new one at any
// time, after a crash too. The old one is at next afterwards, or gone: a filesystem that exchanges no names (ZFS before 2.2) has
// it replaced if it was there an instant earlier, so that who removes and who replaces exclude each other.
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

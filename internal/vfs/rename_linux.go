package vfs

import "golang.org/x/sys/unix"

// Flags of [RenameAt]. RenameNoReplace makes it fail with EEXIST if the target exists; RenameExchange
// atomically exchanges the two names.
const (
	RenameNoReplace = unix.RENAME_NOREPLACE
	RenameExchange  = unix.RENAME_EXCHANGE
)

// RenameAt renames from in the directory fromDir to to in the directory toDir, by renameat2(2), with flags.
// EINVAL: the filesystem does not support the flag.
func RenameAt(fromDir int, from string, toDir int, to string, flags uint) error {
	return unix.Renameat2(fromDir, from, toDir, to, flags)
}

// RenameNew renames old to new, and returns unix.EEXIST if new exists (renameat2(2) with RENAME_NOREPLACE on
// Linux). On a filesystem without that flag (ZFS before 2.2) it makes a hard link to a file and removes the
// old name, and renames a directory plainly, which can only replace an empty directory made at the same
// instant. On macOS it needs APFS or HFS+, and returns ENOTSUP on others.
func RenameNew(old, new string) error {
	err := unix.Renameat2(unix.AT_FDCWD, old, unix.AT_FDCWD, new, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL {
		return renameByHand(old, new)
	}
	return err
}

// Replace atomically renames the file next over the existing file path. It returns unix.ENOENT if path does
// not exist, so that a file that another process has removed does not come back. Afterwards the old file is
// at next, or deleted. On a filesystem that cannot exchange names (ZFS before 2.2) a file removed at the same
// instant may come back: there, callers must exclude removals.
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

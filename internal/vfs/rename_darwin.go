package vfs

import "golang.org/x/sys/unix"

// Flags of [RenameAt]. RenameNoReplace makes it fail with EEXIST if the target exists; RenameExchange
// atomically exchanges the two names.
const (
	RenameNoReplace = unix.RENAME_EXCL
	RenameExchange  = unix.RENAME_SWAP
)

// RenameAt renames from in the directory fromDir to to in the directory toDir, by renameatx_np(2), with
// flags. ENOTSUP and EINVAL: the filesystem does not support the flag.
func RenameAt(fromDir int, from string, toDir int, to string, flags uint) error {
	return unix.RenameatxNp(fromDir, from, toDir, to, uint32(flags))
}

// RenameNew renames old to new, and returns unix.EEXIST if new exists (renameat2(2) with RENAME_NOREPLACE on
// Linux). On a filesystem without that flag (ZFS before 2.2) it makes a hard link to a file and removes the
// old name, and renames a directory plainly, which can only replace an empty directory made at the same
// instant. On macOS it needs APFS or HFS+, and returns ENOTSUP on others.
func RenameNew(old, new string) error {
	return RenameAt(unix.AT_FDCWD, old, unix.AT_FDCWD, new, RenameNoReplace)
}

// Replace atomically renames the file next over the existing file path. It returns unix.ENOENT if path does not exist,
// so that a file that another process has removed does not come back. Afterwards the old file is at next.
func Replace(next, path string) error {
	return RenameAt(unix.AT_FDCWD, next, unix.AT_FDCWD, path, RenameExchange)
}

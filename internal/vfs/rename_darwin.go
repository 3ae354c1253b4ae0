package vfs

import "golang.org/x/sys/unix"

// Flags of [RenameAt]: with RenameNoReplace an existing target is EEXIST, and RenameExchange
// atomically exchanges the two names.
const (
	RenameNoReplace = unix.RENAME_EXCL
	RenameExchange  = unix.RENAME_SWAP
)

// RenameAt renames a file by renameatx_np(2), with flags. ENOTSUP and EINVAL: the filesystem
// does not support the flag.
func RenameAt(fromDir int, from string, toDir int, to string, flags uint) error {
	return unix.RenameatxNp(fromDir, from, toDir, to, uint32(flags))
}

// RenameNew renames old to new, and returns unix.EEXIST if new exists (renameat2(2) with
// RENAME_NOREPLACE on Linux). A filesystem without that flag (ZFS before 2.2) gets a hard link
// for a file and a plain rename for a directory, which can only replace an empty directory
// made at the same instant. On macOS it needs APFS or HFS+, elsewhere ENOTSUP.
func RenameNew(old, new string) error {
	return RenameAt(unix.AT_FDCWD, old, unix.AT_FDCWD, new, RenameNoReplace)
}

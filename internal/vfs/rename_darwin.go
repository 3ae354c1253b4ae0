package vfs

import "golang.org/x/sys/unix"

// How [RenameAt] treats a name that is there: RenameNoReplace gives EEXIST, and
// RenameExchange has the two change places, at once.
const (
	RenameNoReplace = unix.RENAME_EXCL
	RenameExchange  = unix.RENAME_SWAP
)

// RenameAt is renameatx_np(2). ENOTSUP and EINVAL: the filesystem knows no such flag.
func RenameAt(fromDir int, from string, toDir int, to string, flags uint) error {
	return unix.RenameatxNp(fromDir, from, toDir, to, uint32(flags))
}

// RenameNew renames old to new, and returns unix.EEXIST if new exists. On Linux it uses
// renameat2(2) with RENAME_NOREPLACE (Linux 3.15; ext4, btrfs, xfs, tmpfs, overlayfs); on a
// filesystem without it (ZFS before 2.2: EINVAL) it links a file to its new name first, and
// renames a directory, which can replace nothing but an empty directory made at the same
// instant. On macOS it works on APFS and HFS+, elsewhere ENOTSUP.
func RenameNew(old, new string) error {
	return RenameAt(unix.AT_FDCWD, old, unix.AT_FDCWD, new, RenameNoReplace)
}

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

// RenameNew renames old to new, and gives unix.EEXIST where new is there already,
// on APFS and HFS+. Other filesystems: ENOTSUP.
func RenameNew(old, new string) error {
	return RenameAt(unix.AT_FDCWD, old, unix.AT_FDCWD, new, RenameNoReplace)
}

package kernel

import "golang.org/x/sys/unix"

// RenameNew renames old to new, and gives unix.EEXIST where new is there
// already: renameat2(2) with RENAME_NOREPLACE, Linux 3.15, on ext4, btrfs, xfs,
// tmpfs and overlayfs.
func RenameNew(old, new string) error {
	return unix.Renameat2(unix.AT_FDCWD, old, unix.AT_FDCWD, new, unix.RENAME_NOREPLACE)
}

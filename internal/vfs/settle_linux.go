package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncData puts the content of a new file on the disk before any name that it gets from here on: a power cut
// leaves it with neither or with both. What else fsync(2) waits for, a transaction of the
// filesystem, takes several times as long, and need not be waited for: ext4 writes the blocks of a
// transaction before that (data=ordered, ext4(5)), and XFS tells its log how long a file is when it has
// been written, before who waits for that goes on (xfs_end_io in fs/xfs/xfs_aops.c). Elsewhere it is fsync(2).
func SyncData(f *os.File) error {
	var st unix.Statfs_t
	fd := int(f.Fd())
	if err := unix.Fstatfs(fd, &st); err != nil {
		return err
	}
	switch st.Type {
	case unix.TMPFS_MAGIC:
		return nil
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC:
		const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		return unix.SyncFileRange(fd, 0, 0, all)
	}
	return f.Sync()
}

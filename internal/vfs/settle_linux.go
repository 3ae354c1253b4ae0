package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncData writes the content of a new file to disk before any name that it gets afterwards:
// after a power cut it has both or neither. fsync(2) also waits for a transaction of the
// filesystem, which takes several times as long and is not needed: ext4 writes a transaction's
// blocks before it (data=ordered, ext4(5)), and XFS logs a file's length once its data is
// written (xfs_end_io in fs/xfs/xfs_aops.c). On other filesystems it is fsync(2).
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

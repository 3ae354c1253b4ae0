package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncData makes sure that the content of the new file f reaches the disk before any name that f gets
// afterwards: after a power cut both exist or neither does. On ext4 and XFS it writes only the data and
// avoids fsync(2), which also waits for a transaction: ext4 writes data before the transaction (data=ordered,
// ext4(5)), and XFS logs a file's length after its data (xfs_end_io in fs/xfs/xfs_aops.c). On other
// filesystems it is fsync(2).
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

// OrderData makes sure that a power loss leaves the new file f with all of its content, or without any name that it
// gets afterwards. On ext4 it does not wait for the disk: it has the kernel allocate the blocks and begin to write, and
// the transaction with a later name ends after the data of earlier allocations (data=ordered, ext4(5);
// ext4_jbd2_inode_add_write in fs/ext4/inode.c). On other filesystems it is [SyncData].
func OrderData(f *os.File) error {
	var st unix.Statfs_t
	fd := int(f.Fd())
	if err := unix.Fstatfs(fd, &st); err != nil {
		return err
	}
	if st.Type == unix.EXT4_SUPER_MAGIC {
		return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	return SyncData(f)
}

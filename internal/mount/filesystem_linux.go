package mount

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// FilesystemOf describes the filesystem at path; a symbolic link is followed.
// Errors are *os.PathError. Cost: one system call, which can hang on a network
// filesystem whose server is gone.
func FilesystemOf(path string) (Filesystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Filesystem{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return fromStatfs(&st), nil
}

func fromStatfs(st *unix.Statfs_t) Filesystem {
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	return Filesystem{
		Type:     magicName(uint32(st.Type)),
		Size:     int64(st.Blocks) * unit,
		Free:     int64(st.Bfree) * unit,
		Avail:    int64(st.Bavail) * unit,
		ReadOnly: st.Flags&unix.ST_RDONLY != 0,
	}
}

// magicName returns the name, such as "ext4", of the filesystem type with this number in statfs(2)
// (linux/magic.h, or a filesystem outside the kernel tree); "" for an unknown one.
func magicName(magic uint32) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.RAMFS_MAGIC:
		return "ramfs"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case 0x2fc12fc1:
		return "zfs"
	case 0xca451a4e:
		return "bcachefs"
	case unix.F2FS_SUPER_MAGIC:
		return "f2fs"
	case unix.EROFS_SUPER_MAGIC_V1:
		return "erofs"
	case unix.SQUASHFS_MAGIC:
		return "squashfs"
	case unix.ISOFS_SUPER_MAGIC:
		return "iso9660"
	case unix.MSDOS_SUPER_MAGIC:
		return "vfat"
	case 0x2011bab0:
		return "exfat"
	case 0x7366746e:
		return "ntfs3"
	}
	return otherMagic(magic)
}

func otherMagic(magic uint32) string {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case 0xff534d42:
		return "cifs"
	case 0xfe534d42:
		return "smb2"
	case unix.SMB_SUPER_MAGIC:
		return "smb3"
	case unix.V9FS_MAGIC:
		return "9p"
	case 0x00c36400:
		return "ceph"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "afs"
	case unix.CODA_SUPER_MAGIC:
		return "coda"
	case 0x0bd00bd0:
		return "lustre"
	case 0x47504653:
		return "gpfs"
	case 0x7461636f:
		return "ocfs2"
	case 0x01161970:
		return "gfs2"
	}
	return virtualMagic(magic)
}

func virtualMagic(magic uint32) string {
	switch magic {
	case unix.PROC_SUPER_MAGIC:
		return "proc"
	case unix.SYSFS_MAGIC:
		return "sysfs"
	case unix.CGROUP_SUPER_MAGIC:
		return "cgroup"
	case unix.CGROUP2_SUPER_MAGIC:
		return "cgroup2"
	case unix.DEVPTS_SUPER_MAGIC:
		return "devpts"
	case unix.DEBUGFS_MAGIC:
		return "debugfs"
	case unix.TRACEFS_MAGIC:
		return "tracefs"
	case unix.SECURITYFS_MAGIC:
		return "securityfs"
	case unix.BPF_FS_MAGIC:
		return "bpf"
	case unix.PSTOREFS_MAGIC:
		return "pstore"
	case unix.EFIVARFS_MAGIC:
		return "efivarfs"
	case 0x62656570:
		return "configfs"
	case unix.BINFMTFS_MAGIC:
		return "binfmt_misc"
	case 0x19800202:
		return "mqueue"
	case unix.AUTOFS_SUPER_MAGIC:
		return "autofs"
	case unix.HUGETLBFS_MAGIC:
		return "hugetlbfs"
	case unix.NSFS_MAGIC:
		return "nsfs"
	case 0x65735543:
		return "fusectl"
	}
	return "0x" + strconv.FormatUint(uint64(magic), 16)
}

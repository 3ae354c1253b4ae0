package projquota

import (
	"unsafe"

	"github.com/snapfs/snapfs/internal/btrfs"
	"golang.org/x/sys/unix"
)

// Project quotas, of ext4 and xfs: what bears the number of a project is charged
// to it, and what is made in a directory that hands its number on bears it too.
// Numbers and layouts are those of include/uapi/linux/{fs,quota,dqblk_xfs}.h.

const (
	projectInherit = 0x200 // FS_XFLAG_PROJINHERIT
	projectQuota   = 2     // PRJQUOTA

	quotaGet      = 0x800007
	quotaSet      = 0x800008
	quotaGetState = 'X'<<8 + 5
)

type fsxattr struct {
	flags, extent, extents, project, copyExtent uint32
	_                                           [8]byte
}

func fsxattrIoctl(fd int, dir, nr uintptr, a *fsxattr) error {
	req := dir<<30 | unsafe.Sizeof(*a)<<16 | 'X'<<8 | nr
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), req, uintptr(unsafe.Pointer(a)))
	if errno != 0 {
		return errno
	}
	return nil
}

// Of returns the id of the project that an open file or directory is charged to; 0 means none. ENOTTY,
// EOPNOTSUPP: the filesystem does not support projects.
func Of(fd int) (uint32, error) {
	var a fsxattr
	err := fsxattrIoctl(fd, btrfs.IocRead, 31, &a)
	return a.project, err
}

// AllocatesAhead reports whether XFS allocates space for the open file fd in units of more than a block, so
// that unwritten space surrounds written data (extsize, extszinherit and realtime in xfs_io(8)).
func AllocatesAhead(fd int) (bool, error) {
	const realtime, sized = 0x1, 0x800 // FS_XFLAG_REALTIME, FS_XFLAG_EXTSIZE
	var a fsxattr
	err := fsxattrIoctl(fd, btrfs.IocRead, 31, &a)
	return a.flags&(realtime|sized) != 0, err
}

// Set sets the project id to which the open file or directory fd is charged from then on. With inherit, new
// entries of a directory belong to the project too, and renaming a file into it from a directory of another
// project fails (EXDEV). Only the owner, in the initial user namespace, may.
func Set(fd int, id uint32, inherit bool) error {
	var a fsxattr
	if err := fsxattrIoctl(fd, btrfs.IocRead, 31, &a); err != nil {
		return err
	}
	was := a
	a.project = id
	a.flags &^= projectInherit
	if inherit {
		a.flags |= projectInherit
	}
	if a == was {
		return nil
	}
	return fsxattrIoctl(fd, btrfs.IocWrite, 32, &a)
}

// A Use is how many bytes and inodes the files of one quota project use, and the project's limits; a limit of
// 0 means none.
type Use struct {
	ID                     uint32
	Bytes, Inodes          int64
	BytesLimit, NodesLimit int64
}

// A dqblk is the kernel's description of a project's usage and limits, struct if_nextdqblk of quotactl(2), of
// which struct if_dqblk is the beginning.
type dqblk struct {
	hardBytes, softBytes, bytes    uint64 // limits in KiB
	hardInodes, softInodes, inodes uint64
	byteTime, inodeTime            uint64
	valid, id                      uint32
}

func quotactl(fd int, cmd uintptr, id uint32, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), cmd<<8|projectQuota, uintptr(id), uintptr(arg), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Enabled reports whether the filesystem of fd, open for reading, enforces project quotas: it
// was mounted with prjquota. It returns false if the kernel lacks quotas or quotactl_fd(2)
// (Linux 5.14).
func Enabled(fd int) (bool, error) {
	const enforced = 1 << 5 // FS_QUOTA_PDQ_ENFD
	var state struct {
		_     uint16
		flags uint16
		_     [156]byte // struct fs_quota_stat is shorter
	}
	err := quotactl(fd, quotaGetState, 0, unsafe.Pointer(&state))
	switch err {
	case unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP, unix.ESRCH:
		return false, nil
	}
	return state.flags&enforced != 0, err
}

// Usage returns how many bytes and inodes the project id uses on the filesystem of fd, and its limits; all
// zero for an unknown project. Only root may.
func Usage(fd int, id uint32) (Use, error) {
	var q dqblk
	err := quotactl(fd, quotaGet, id, unsafe.Pointer(&q))
	if err == unix.ENOENT {
		return Use{ID: id}, nil
	}
	q.id = id
	return q.use(), err
}

func (q *dqblk) use() Use {
	return Use{
		ID: q.id, Bytes: int64(q.bytes), Inodes: int64(q.inodes),
		BytesLimit: int64(q.hardBytes) << 10, NodesLimit: int64(q.hardInodes),
	}
}

// Limit sets the limits of the project id on the filesystem of fd in bytes, rounded down to KiB, and in
// inodes; 0 means none. Writes beyond fail with EDQUOT (ext4) or ENOSPC (xfs). On ext4 a process with
// CAP_SYS_RESOURCE is exempt, unless it writes through an overlay. Only root may.
func Limit(fd int, id uint32, bytes, inodes int64) error {
	const limits = 1 | 4 // QIF_BLIMITS, QIF_ILIMITS
	q := dqblk{hardInodes: uint64(inodes), valid: limits}
	if bytes > 0 {
		q.hardBytes = max(1, uint64(bytes)>>10)
	}
	return quotactl(fd, quotaSet, id, unsafe.Pointer(&q))
}

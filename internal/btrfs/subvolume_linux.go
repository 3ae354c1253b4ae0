package btrfs

import (
	"bytes"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ioctls of btrfs, on open descriptors and never on paths, so that no file can be
// swapped between a check and its use. Errors are plain unix.Errno. Numbers and
// layouts are those of include/uapi/linux/btrfs.h. The library for btrfs that
// exists for Go works on paths, and has neither quotas nor the calls an
// ordinary user may make; the tests use it to check this file.

const (
	btrfsSnapDestroy   = 15
	btrfsSubvolGetFlag = 25
	btrfsSubvolSetFlag = 26
	btrfsSnapCreateV2  = 23
	btrfsSubvolCreate2 = 24
	btrfsFsInfo        = 31
	btrfsResize        = 3
	btrfsSync          = 8
	btrfsSubvolInfo    = 60
	btrfsSubvolRootref = 61
	btrfsInoLookupUser = 62
	btrfsSubvolSync    = 65
)

const (
	btrfsReadOnly = 1 << 1

	// RootInode is the inode number of the root directory of every btrfs subvolume.
	RootInode    = 256
	btrfsNameMax = 255
)

// Bits of an ioctl's number that say in which direction the ioctl passes data (asm-generic/ioctl.h). This
// package computes the numbers of btrfs's ioctls from them.
const (
	iocNone  = 0
	IocWrite = 1
	IocRead  = 2
)

func btrfsIoctl(fd int, dir, nr, size uintptr, arg unsafe.Pointer) error {
	req := dir<<30 | size<<16 | 0x94<<8 | nr
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), req, uintptr(arg))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}

type btrfsVolArgs struct {
	fd   int64
	name [4088]byte
}

type btrfsVolArgsV2 struct {
	fd      int64
	transid uint64
	flags   uint64
	_       [4]uint64
	name    [4040]byte
}

func putBtrfsName(dst []byte, name string) error {
	if len(name) == 0 || len(name) > btrfsNameMax {
		return unix.ENAMETOOLONG
	}
	copy(dst, name)
	return nil
}

// Is reports whether the open file or directory fd lies on btrfs.
func Is(fd int) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return false, err
	}
	return st.Type == unix.BTRFS_SUPER_MAGIC, nil
}

// Snapshot creates dir/name as a snapshot of the subvolume whose root is open as src, writable
// or read-only. Atomic; costs one transaction commit, after writing the source's buffered
// data. dir stays locked meanwhile: use a directory for each snapshot. EPERM: src belongs to
// another user; EEXIST; EXDEV: another filesystem; EROFS; ENOSPC.
func Snapshot(src, dir int, name string, readOnly bool) error {
	args := btrfsVolArgsV2{fd: int64(src)}
	if readOnly {
		args.flags = btrfsReadOnly
	}
	if err := putBtrfsName(args.name[:], name); err != nil {
		return err
	}
	return btrfsIoctl(dir, IocWrite, btrfsSnapCreateV2, unsafe.Sizeof(args), unsafe.Pointer(&args))
}

// Create makes an empty btrfs subvolume named name in the open directory dir, with mode 0777 less the umask.
func Create(dir int, name string) error {
	var args btrfsVolArgsV2
	if err := putBtrfsName(args.name[:], name); err != nil {
		return err
	}
	return btrfsIoctl(dir, IocWrite, btrfsSubvolCreate2, unsafe.Sizeof(args), unsafe.Pointer(&args))
}

// Destroy removes the btrfs subvolume named name in the open directory dir; the kernel's cleaner frees its
// space later. Cost: 7 µs for each cached inode. ENOTEMPTY: a subvolume lies in it. EPERM: not root, and not
// mounted with user_subvol_rm_allowed. EROFS: read-only, and not root.
func Destroy(dir int, name string) error {
	var args btrfsVolArgs
	if err := putBtrfsName(args.name[:], name); err != nil {
		return err
	}
	return btrfsIoctl(dir, IocWrite, btrfsSnapDestroy, unsafe.Sizeof(args), unsafe.Pointer(&args))
}

// SetReadOnly makes the subvolume whose root is open as fd read-only or writable. The
// subvolume's owner and root may.
func SetReadOnly(fd int, readOnly bool) error {
	was, err := btrfsFlags(fd)
	if err != nil {
		return err
	}
	flags := was &^ btrfsReadOnly
	if readOnly {
		flags |= btrfsReadOnly
	}
	if flags == was {
		return nil
	}
	return btrfsIoctl(fd, IocWrite, btrfsSubvolSetFlag, unsafe.Sizeof(flags), unsafe.Pointer(&flags))
}

func btrfsFlags(fd int) (uint64, error) {
	var flags uint64
	err := btrfsIoctl(fd, IocRead, btrfsSubvolGetFlag, unsafe.Sizeof(flags), unsafe.Pointer(&flags))
	return flags, err
}

// UUID identifies a btrfs subvolume or filesystem; all zero means none.
type UUID [16]byte

// String returns the usual form of a UUID: 8-4-4-4-12 hexadecimal digits.
func (u UUID) String() string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 36)
	for i, b := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			out = append(out, '-')
		}
		out = append(out, digits[b>>4], digits[b&15])
	}
	return string(out)
}

// Subvolume holds the attributes of a btrfs subvolume, such as its id and parent, that
// BTRFS_IOC_GET_SUBVOL_INFO returns. [Info] makes it.
type Subvolume struct {
	ID uint64
	// UUID identifies the subvolume; Parent is the UUID of the subvolume of which it is a
	// snapshot.
	UUID, Parent UUID
	// Generation is the last committed transaction that changed the subvolume, exact only
	// after [unix.Syncfs]. Taking a snapshot of the subvolume counts as a change.
	Generation uint64
	// Born is the transaction that created the subvolume.
	Born     uint64
	ReadOnly bool
}

type btrfsTime struct {
	sec  uint64
	nsec uint32
	_    uint32
}

type btrfsSubvolInfoArgs struct {
	treeid                         uint64
	name                           [btrfsNameMax + 1]byte
	parent, dirid, generation      uint64
	flags                          uint64
	uuid, parentUUID, receivedUUID UUID
	ctransid, otransid             uint64
	stransid, rtransid             uint64
	ctime, otime, stime, rtime     btrfsTime
	_                              [8]uint64
}

// Info returns the attributes of the subvolume that holds the open file fd. Any user may call
// it. Cost: under a microsecond.
func Info(fd int) (Subvolume, error) {
	var a btrfsSubvolInfoArgs
	err := btrfsIoctl(fd, IocRead, btrfsSubvolInfo, unsafe.Sizeof(a), unsafe.Pointer(&a))
	if err != nil {
		return Subvolume{}, err
	}
	return Subvolume{
		ID: a.treeid, UUID: a.uuid, Parent: a.parentUUID,
		Generation: a.generation, Born: a.otransid,
		ReadOnly: a.flags&btrfsReadOnly != 0 || a.flags&1 != 0,
	}, nil
}

type btrfsRootrefArgs struct {
	min  uint64
	refs [255]struct{ treeid, dirid uint64 }
	num  uint8
	_    [7]byte
}

type btrfsLookupArgs struct {
	dirid, treeid uint64
	name          [btrfsNameMax + 1]byte
	path          [4080 - btrfsNameMax - 1]byte
}

// Nested returns the paths of the subvolumes in the open directory fd that lie directly in the subvolume of
// fd, relative to fd. It leaves out those that this user cannot reach. Cost: one ioctl, and another for each
// subvolume found, whatever the size of the tree.
func Nested(fd int) ([]string, error) {
	var paths []string
	refs := btrfsRootrefArgs{}
	for {
		err := btrfsIoctl(fd, IocRead|IocWrite, btrfsSubvolRootref, unsafe.Sizeof(refs), unsafe.Pointer(&refs))
		if err != nil && err != unix.EOVERFLOW {
			return nil, err
		}
		for _, r := range refs.refs[:refs.num] {
			look := btrfsLookupArgs{dirid: r.dirid, treeid: r.treeid}
			switch e := btrfsIoctl(fd, IocRead|IocWrite, btrfsInoLookupUser, unsafe.Sizeof(look), unsafe.Pointer(&look)); e {
			case nil:
				paths = append(paths, cString(look.path[:])+cString(look.name[:]))
			case unix.EACCES, unix.ENOENT: // elsewhere in the subvolume, or just removed
			default:
				return nil, e
			}
		}
		if err == nil {
			return paths, nil
		}
	}
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

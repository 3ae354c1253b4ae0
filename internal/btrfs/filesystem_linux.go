package btrfs

import "unsafe"

// Calls that concern a whole btrfs filesystem: its identity, size and the queue
// of its cleaner.

type btrfsFsInfoArgs struct {
	maxID, devices                  uint64
	fsid                            UUID
	nodeSize, sectorSize, alignment uint32
	csumType, csumSize              uint16
	flags, generation               uint64
	metadata                        UUID
	_                               [944]byte
}

// FilesystemUUID returns the UUID of the btrfs filesystem that holds the open file fd.
func FilesystemUUID(fd int) (UUID, error) {
	var a btrfsFsInfoArgs
	err := btrfsIoctl(fd, IocRead, btrfsFsInfo, unsafe.Sizeof(a), unsafe.Pointer(&a))
	return a.fsid, err
}

// Grow resizes the btrfs filesystem of the open file fd to fill its first device, after that has grown. Only
// root may.
func Grow(fd int) error {
	var args btrfsVolArgs
	copy(args.name[:], "max")
	return btrfsIoctl(fd, IocWrite, btrfsResize, unsafe.Sizeof(args), unsafe.Pointer(&args))
}

// Commit writes all buffered data of the btrfs filesystem of fd to disk. It also wakes the kernel's cleaner,
// which otherwise waits up to 30 seconds before it frees removed subvolumes.
func Commit(fd int) error {
	return btrfsIoctl(fd, iocNone, btrfsSync, 0, nil)
}

// Queue returns how many removed subvolumes of the btrfs filesystem of fd the kernel's cleaner has not freed
// yet. ENOTTY before Linux 6.13.
func Queue(fd int) (int, error) {
	const count = 2 // BTRFS_SUBVOL_SYNC_COUNT
	args := struct {
		id   uint64
		mode uint32
		n    uint32
	}{mode: count}
	err := btrfsIoctl(fd, IocWrite, btrfsSubvolSync, unsafe.Sizeof(args), unsafe.Pointer(&args))
	return int(args.n), err
}

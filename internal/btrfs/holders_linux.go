package btrfs

import (
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	btrfsLogicalInoV2 = 59
	// btrfsWholeExtent asks for all references to an extent, whichever part of it they use.
	btrfsWholeExtent = 1
	// btrfsMostHolders is the largest buffer for references that the kernel fills, in units of 8 bytes (16 MiB).
	btrfsMostHolders = 1 << 21
)

type btrfsLogicalInoArgs struct {
	logical, size uint64
	_             [3]uint64
	flags         uint64
	inodes        uintptr
}

// holderBuffers pools the buffers into which [Holders] reads references.
var holderBuffers = sync.Pool{New: func() any { return new([1 << 13]uint64) }}

// Holders calls visit with the id of the subvolume of each reference to the data extent at address, of the filesystem
// of fd, until visit returns false. A subvolume that shares the extent several times occurs several times. A deleted
// subvolume occurs until the kernel has freed its data; see [IsThere]. An extent that no longer exists has no
// references. Only root (CAP_SYS_ADMIN) can call it. Errors: ENOBUFS if there are more than 700,000 references.
func Holders(fd int, address uint64, visit func(subvolume uint64) bool) error {
	pooled, _ := holderBuffers.Get().(*[1 << 13]uint64)
	defer holderBuffers.Put(pooled)
	for buf := pooled[:]; ; {
		a := btrfsLogicalInoArgs{logical: address, size: uint64(len(buf) * 8), flags: btrfsWholeExtent, inodes: uintptr(unsafe.Pointer(&buf[0]))}
		err := btrfsIoctl(fd, IocRead|IocWrite, btrfsLogicalInoV2, unsafe.Sizeof(a), unsafe.Pointer(&a))
		runtime.KeepAlive(buf)
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return err
		}
		head := (*struct{ left, missing, count, missed uint32 })(unsafe.Pointer(&buf[0]))
		if head.missing > 0 || head.missed > 0 {
			if len(buf) == btrfsMostHolders {
				return unix.ENOBUFS
			}
			buf = make([]uint64, btrfsMostHolders)
			continue
		}
		refs := buf[2:] // inode, offset and subvolume of each reference
		for i := 2; i < int(head.count) && i < len(refs); i += 3 {
			if !visit(refs[i]) {
				return nil
			}
		}
		return nil
	}
}

// Extent returns the address and the size on disk of the data extent that a tree item of the type ExtentData
// refers to; a size of 0 for holes, data inside the item, and other items.
func (it Item) Extent() (address uint64, size int64) {
	const inline = 0
	if it.Type != ExtentData || len(it.Data) < 53 || it.Data[20] == inline {
		return 0, 0
	}
	if address = le64(it.Data[21:]); address == 0 {
		return 0, 0
	}
	return address, int64(le64(it.Data[29:]))
}

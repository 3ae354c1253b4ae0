package vfs

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A fiemap is the argument of the ioctl FS_IOC_FIEMAP: struct fiemap of linux/fiemap.h with its extents.
type fiemap struct {
	start, length           uint64
	flags, mapped, count, _ uint32
	extents                 [fiemapExtents]fiemapExtent
}

// A fiemapExtent is one range of a file that the kernel stores in one place: struct fiemap_extent.
type fiemapExtent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

// fiemapExtents is how many extents of a file one system call lists.
const fiemapExtents = 128

// SharedExtents returns the ranges of the disk that the open file fd shares with another file, or with another part
// of itself: after a reflink, a deduplication, or a snapshot of the filesystem. Data that the kernel has not written
// to the disk yet is not shared. Cost: a system call for each 128 extents of the file. The error matches
// [errors.ErrUnsupported] if the filesystem does not list extents.
func SharedExtents(fd int) (shared []Extent, err error) {
	const (
		ioctl                 = 0xc020660b // FS_IOC_FIEMAP
		last, unknown, sharer = 0x1, 0x2, 0x2000
	)
	var m fiemap
	for {
		m.length, m.count = ^uint64(0)-m.start, fiemapExtents
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctl, uintptr(unsafe.Pointer(&m)))
		runtime.KeepAlive(&m)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EOPNOTSUPP, errno == unix.ENOTTY, errno == unix.EINVAL, errno == unix.EBADR:
			return nil, errors.Join(errors.ErrUnsupported, errno)
		case errno != 0:
			return nil, errno
		}
		for _, e := range m.extents[:min(m.mapped, fiemapExtents)] {
			if e.flags&sharer != 0 && e.flags&unknown == 0 {
				shared = append(shared, Extent{e.physical, e.physical + e.length})
			}
			if m.start = e.logical + e.length; e.flags&last != 0 {
				return shared, nil
			}
		}
		if m.mapped == 0 {
			return shared, nil
		}
	}
}

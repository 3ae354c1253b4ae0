package zfs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	zfsDiff      Call = 0x5a36
	zfsTemporary Call = 0x5a37
)

// A zfsLegacy is the argument of ZFS ioctls that take no lists of name-value pairs: zfs_cmd_t
// (include/sys/zfs_ioctl.h of OpenZFS 2.0 to 2.2). If a later version has another layout, the call finds
// descriptor 0 instead of that of /dev/zfs and does nothing (EBADF).
type zfsLegacy struct {
	name    [4096]byte
	_       [48]byte
	value   [8192]byte
	_       [256 + 24]byte
	cookie  uint64 // at 12616
	_       [1040]byte
	cleanup int32 // at 13664
	_       [60 << 10]byte
}

func (c *zfsLegacy) set(name, value string) error {
	if len(name) >= len(c.name) || len(value) >= len(c.value) {
		return unix.ENAMETOOLONG
	}
	copy(c.name[:], name)
	copy(c.value[:], value)
	return nil
}

func (c *zfsLegacy) do(dev *os.File, call Call) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dev.Fd(), uintptr(call), uintptr(unsafe.Pointer(c))); errno != 0 {
		return errno
	}
	return nil
}

// Temporary takes a snapshot of a dataset that ZFS removes when the file gone is closed or the process ends.
// The snapshot's name is "dataset@" and a name that begins with prefix. Cost: a transaction group. Errors are
// *os.PathError: those of [ZFS], and EEXIST if a snapshot with that prefix was made in the same clock tick.
func Temporary(dataset, prefix string) (snapshot string, gone *os.File, err error) {
	const dev = "/dev/zfs"
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return "", nil, err
	}
	c := &zfsLegacy{cleanup: int32(f.Fd())}
	if err = c.set(dataset, prefix); err == nil {
		err = c.do(f, zfsTemporary)
	}
	name, _, _ := strings.Cut(string(c.value[:]), "\x00")
	if err == nil && !strings.HasPrefix(name, prefix) {
		err = unix.EPROTO
	}
	if err != nil {
		f.Close()
		return "", nil, &os.PathError{Op: "ioctl", Path: dev, Err: err}
	}
	return dataset + "@" + name, f, nil
}

// An Objects is a set of ZFS object numbers, which are inode numbers, as sorted ranges that do not overlap.
// [Changed] returns it: the files that differ between two snapshots.
type Objects []zfsRange // sorted, with gaps between them

type zfsRange struct{ first, last uint64 }

// Changed returns the numbers of the objects (files and directories) that differ between two snapshots; older
// must be an ancestor of younger. Up to 31 neighbours of each are included, because ZFS compares whole blocks
// of object descriptions. Deleted objects are not included, but the directory that held them is. Changed
// reads no object and no path. Cost: in proportion to the changed blocks. Errors are *os.PathError: those of
// [ZFS], and EXDEV if older is no ancestor.
func Changed(older, younger string) (Objects, error) {
	const dev = "/dev/zfs"
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for range 5 { // a signal to this thread, of which the runtime has some, ends it
		var all Objects
		if all, err = zfsChanged(f, older, younger); !errors.Is(err, unix.EINTR) {
			if err == nil {
				return all, nil
			}
			break
		}
	}
	return nil, &os.PathError{Op: "ioctl", Path: dev, Err: err}
}

// zfsChanged makes the kernel write its list of the objects that differ between two snapshots to a file in
// memory, which never blocks the kernel, and returns the list. dev is /dev/zfs, open.
func zfsChanged(dev *os.File, older, younger string) (Objects, error) {
	fd, err := unix.MemfdCreate("zfs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	records := os.NewFile(uintptr(fd), "records")
	defer records.Close()
	c := &zfsLegacy{cookie: uint64(fd)}
	if err = c.set(younger, older); err == nil {
		err = c.do(dev, zfsDiff)
	}
	if err != nil {
		return nil, err
	}
	info, err := records.Stat()
	if err != nil {
		return nil, err
	}
	raw := make([]byte, info.Size())
	if _, err := records.ReadAt(raw, 0); err != nil && err != io.EOF {
		return nil, err
	}
	return parseZFSObjects(raw)
}

// parseZFSObjects parses the kernel's list of changed objects, which consists of dmu_diff_record_t: a type,
// and the first and last object of a range. Ranges of free objects may be very large and overlap others.
func parseZFSObjects(raw []byte) (Objects, error) {
	const size, inUse, free = 24, 2, 4
	if len(raw)%size != 0 {
		return nil, unix.EPROTO
	}
	var all Objects
	for r := range slices.Chunk(raw, size) {
		kind, first, last := binary.NativeEndian.Uint64(r), binary.NativeEndian.Uint64(r[8:]), binary.NativeEndian.Uint64(r[16:])
		switch {
		case kind != inUse && kind != free || first > last:
			return nil, fmt.Errorf("a record of kind %d, from %d to %d: %w", kind, first, last, unix.EPROTO)
		case kind == inUse:
			all = append(all, zfsRange{first, last})
		}
	}
	slices.SortFunc(all, func(a, b zfsRange) int { return cmp.Compare(a.first, b.first) })
	merged := all[:0]
	for _, r := range all {
		if n := len(merged); n > 0 && r.first <= merged[n-1].last {
			merged[n-1].last = max(r.last, merged[n-1].last)
			continue
		}
		merged = append(merged, r)
	}
	return merged, nil
}

// Has reports whether the inode number ino is in the set, so that the file may have changed.
func (s Objects) Has(ino uint64) bool {
	_, found := slices.BinarySearchFunc(s, ino, func(r zfsRange, ino uint64) int {
		switch {
		case r.last < ino:
			return -1
		case r.first > ino:
			return 1
		}
		return 0
	})
	return found
}

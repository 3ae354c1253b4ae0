package zfs

import (
	"encoding/binary"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Call is the number of an ioctl on /dev/zfs, which says which operation [ZFS] makes.
type Call uintptr

// The ioctls of ZFS that this package makes: numbers of enum zfs_ioc in include/sys/fs/zfs.h of OpenZFS 2.1,
// which guarantees that they do not change.
const (
	Stats    Call = 0x5a12 // of a dataset: takes no pairs
	Snapshot Call = 0x5a23
	Hold     Call = 0x5a30
	Space    Call = 0x5a3a // of a range of snapshots: what their destruction would free
	Clone    Call = 0x5a42
)

// A zfsCmd is the argument of ZFS ioctls that take a list of name-value pairs: the beginning of zfs_cmd_t
// (include/sys/zfs_ioctl.h), which is all that they use, and space for the other fields, 14 KiB in OpenZFS
// 2.1.
type zfsCmd struct {
	name                     [4096]byte
	in, inSize, out, outSize uint64
	outFilled, _             int32
	_                        [60 << 10]byte
}

// ZFS makes the ioctl call on the pool or dataset called name. in holds its arguments, packed by [Pairs]. ZFS
// returns once the result is on disk; out is a packed list of the parts that failed. Cost: a transaction
// group. Errors are *os.PathError: ENOENT without ZFS, EACCES, EPERM, and those of the call.
func ZFS(call Call, name string, in []byte) (out []byte, err error) {
	const dev = "/dev/zfs"
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := new(zfsCmd)
	if len(name) >= len(cmd.name) {
		return nil, &os.PathError{Op: "ioctl", Path: dev, Err: unix.ENAMETOOLONG}
	}
	copy(cmd.name[:], name)
	out = make([]byte, 128<<10)
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&in[0])
	pins.Pin(&out[0])
	cmd.in, cmd.inSize = uint64(uintptr(unsafe.Pointer(&in[0]))), uint64(len(in))
	cmd.out, cmd.outSize = uint64(uintptr(unsafe.Pointer(&out[0]))), uint64(len(out))
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(call), uintptr(unsafe.Pointer(cmd))); errno != 0 {
		return nil, &os.PathError{Op: "ioctl", Path: dev, Err: errno}
	}
	if cmd.outFilled == 0 {
		return nil, nil
	}
	return out[:min(cmd.outSize, uint64(len(out)))], nil
}

// Pairs packs name-value pairs into the format that ZFS ioctls take, as nvlist_pack of OpenZFS does for its
// own machine (module/nvpair/nvpair.c). Values are strings, uint64, nil for a name alone, or more pairs.
func Pairs(pairs ...Pair) []byte {
	order := byte(0)
	if littleEndian {
		order = 1
	}
	b := append(make([]byte, 0, 256), 0, order, 0, 0)
	b = appendInts(b, 0, zfsUnique)
	return appendPairs(b, pairs)
}

// A Pair is a name with its value, an argument of a ZFS ioctl. [Pairs] says which values are possible.
type Pair struct {
	Name  string
	Value any
}

// NoZFSPairs reports whether a packed list of name-value pairs, such as the failures that [ZFS] returns, is
// empty.
func NoZFSPairs(packed []byte) bool {
	const head = 4 + 8
	return len(packed) < head+4 || binary.NativeEndian.Uint32(packed[head:]) == 0
}

// Number returns the number called name of a packed list of name-value pairs, such as a reply of [ZFS]; ok is false if
// the list has none. Numbers of lists in the list do not count.
func Number(packed []byte, name string) (n uint64, ok bool) {
	const head = 16 // the size of the pair, the size of the name, the number of values, the type
	depth := 0
	for b := packed[min(len(packed), 4+8):]; len(b) >= 4; {
		size := int(binary.NativeEndian.Uint32(b))
		if size == 0 { // the end of a list
			if depth--; depth < 0 {
				break
			}
			b = b[4:]
			continue
		}
		if size < head || size > len(b) {
			break
		}
		named, kind := int(binary.NativeEndian.Uint16(b[4:])), binary.NativeEndian.Uint32(b[12:])
		value := align8(head + named)
		if named == 0 || value > size {
			break
		}
		switch {
		case kind == zfsList:
			depth++ // its pairs follow
		case depth == 0 && kind == zfsUint64 && size >= value+8 && string(b[head:head+named-1]) == name:
			return binary.NativeEndian.Uint64(b[value:]), true
		}
		b = b[size:]
	}
	return 0, false
}

const (
	zfsUnique = 1 // NV_UNIQUE_NAME
	// zfsBoolean and its siblings are the type numbers of values in packed name-value pairs
	// (include/sys/nvpair.h).
	zfsBoolean, zfsUint64, zfsString, zfsList = 1, 8, 9, 19
)

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

func appendInts(b []byte, ints ...int32) []byte {
	for _, i := range ints {
		b = binary.NativeEndian.AppendUint32(b, uint32(i))
	}
	return b
}

// appendPairs appends the encoded name-value pairs to b, and the four zero bytes that end a list.
func appendPairs(b []byte, pairs []Pair) []byte {
	for _, p := range pairs {
		var kind, count int32 = zfsBoolean, 0
		var value []byte
		var beneath []Pair
		switch v := p.Value.(type) {
		case string:
			kind, count, value = zfsString, 1, append([]byte(v), 0)
		case uint64:
			kind, count, value = zfsUint64, 1, binary.NativeEndian.AppendUint64(nil, v)
		case []Pair:
			// A header with a place for pointers; what is in it follows.
			kind, count, beneath = zfsList, 1, v
			value = appendInts(nil, 0, zfsUnique, 0, 0, 0, 0)
		}
		const head = 16
		name := append([]byte(p.Name), 0)
		b = appendInts(b, int32(align8(head+len(name))+align8(len(value))))
		b = binary.NativeEndian.AppendUint16(b, uint16(len(name)))
		b = append(b, 0, 0)
		b = appendInts(b, count, kind)
		b = append(b, name...)
		b = append(b, make([]byte, align8(head+len(name))-head-len(name))...)
		b = append(b, value...)
		b = append(b, make([]byte, align8(len(value))-len(value))...)
		if kind == zfsList {
			b = appendPairs(b, beneath)
		}
	}
	return appendInts(b, 0)
}

func align8(n int) int { return (n + 7) &^ 7 }

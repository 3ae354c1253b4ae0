package btrfs

import (
	"encoding/binary"
	"math"
	"sync"
	"unsafe"
)

// Reading btrfs's trees: fs/btrfs/ioctl.c, btrfs_ioctl_tree_search_v2, and the
// on-disk items of include/uapi/linux/btrfs_tree.h. Root only (CAP_SYS_ADMIN).

const btrfsTreeSearch = 17

// The types of items of a btrfs tree (the filesystem's metadata) that this package decodes, such as inodes,
// names and extents, with their numbers in linux/btrfs_tree.h.
const (
	InodeItem  = 1
	InodeRef   = 12
	InodeXref  = 13
	DirIndex   = 96
	ExtentData = 108
)

// A Range selects the items of a btrfs tree that [Search] returns: those with keys from Min to Max, compared
// as (object, type, offset). A zero Max stands for the largest value.
type Range struct {
	// Tree is the id of the subvolume; 0 selects the subvolume that holds the searched
	// descriptor.
	Tree                 uint64
	MinObject, MaxObject uint64
	MinType, MaxType     uint32
	MinOffset, MaxOffset uint64
	// NewerThan skips the blocks of the tree that no transaction after this one wrote. A block
	// that was written holds older items too, so a search yields more than the changed items
	// but misses none.
	NewerThan uint64
	// Most ends the search after this many items; 0 sets no limit. Without it the kernel looks at all
	// further keys in a block of the tree, even if the range has only one item.
	Most uint32
}

// An Item is one item of a btrfs tree: its key and its content. [Search] passes it to a visitor; Data is
// valid until the visitor returns.
type Item struct {
	Object, Offset uint64
	Type           uint32
	Data           []byte
}

type btrfsSearchArgs struct {
	tree                                 uint64
	minObject, maxObject                 uint64
	minOffset, maxOffset, minTid, maxTid uint64
	minType, maxType, items              uint32
	_                                    uint32
	_                                    [4]uint64
	bufSize                              uint64
}

// btrfsBuffers pools the buffers into which [Search] reads items. An item is smaller than a tree block of at
// most 64 KiB. So if a search leaves that much of a buffer free, it has found its last item.
var btrfsBuffers sync.Pool

const btrfsLargest = 1 << 16

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func le16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }

func orMax[T uint32 | uint64](v, most T) T {
	if v == 0 {
		return most
	}
	return v
}

// Search calls visit for each item of a btrfs tree, of the filesystem of fd, in the range r, in key order,
// until visit returns false. It does not see data and inodes that the kernel has not committed yet; call
// [unix.Syncfs] first. EPERM: not root; ENOENT: no such subvolume.
func Search(fd int, r Range, visit func(Item) bool) error {
	key := btrfsSearchArgs{
		tree:      r.Tree,
		minObject: r.MinObject, maxObject: orMax(r.MaxObject, math.MaxUint64),
		minOffset: r.MinOffset, maxOffset: orMax(r.MaxOffset, math.MaxUint64),
		minType: r.MinType, maxType: orMax(r.MaxType, math.MaxUint8),
		maxTid: math.MaxUint64,
	}
	if r.NewerThan > 0 {
		key.minTid = r.NewerThan + 1
	}
	const head = unsafe.Sizeof(key)
	buf, had := btrfsBuffers.Get().(*[1 << 14]uint64)
	if !had {
		buf = new([1 << 14]uint64)
	}
	defer btrfsBuffers.Put(buf)
	for most := orMax(r.Most, math.MaxUint32); ; {
		// The size in the number is that of the header; the items come after it.
		a := (*btrfsSearchArgs)(unsafe.Pointer(&buf[0]))
		*a = key
		a.items, a.bufSize = most, uint64(len(buf)*8)-uint64(head)
		if err := btrfsIoctl(fd, IocRead|IocWrite, btrfsTreeSearch, head, unsafe.Pointer(a)); err != nil {
			return err
		}
		if a.items == 0 {
			return nil
		}
		found := a.items
		items := unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), len(buf)*8)[head:]
		last, left, more := visitItems(items, int(found), visit)
		if !more || found >= most || left >= btrfsLargest || !key.startAfter(last) {
			return nil
		}
		if r.Most > 0 {
			most -= found
		}
	}
}

// visitItems calls visit for the n tree items that the kernel wrote to buf. It returns the last item, the
// number of unused bytes of buf, and false for more if visit ended the search.
func visitItems(buf []byte, n int, visit func(Item) bool) (last Item, left int, more bool) {
	const header = 32
	for range n {
		if len(buf) < header {
			return last, 0, false
		}
		size := int(le32(buf[28:]))
		last = Item{Object: le64(buf[8:]), Offset: le64(buf[16:]), Type: le32(buf[24:])}
		if len(buf) < header+size {
			return last, 0, false
		}
		last.Data = buf[header : header+size : header+size]
		buf = buf[header+size:]
		if !visit(last) {
			return last, 0, false
		}
	}
	return last, len(buf), true
}

// startAfter makes a search of a btrfs tree continue after the item it: the search then begins at the next
// possible key. It returns false if the item had the last possible key.
func (a *btrfsSearchArgs) startAfter(it Item) bool {
	a.minObject, a.minType, a.minOffset = it.Object, it.Type, it.Offset+1
	if a.minOffset == 0 {
		a.minType++
		if a.minType > math.MaxUint8 {
			a.minType = 0
			a.minObject++
			return a.minObject != 0
		}
	}
	return true
}

// An Inode holds the link count, mode and transaction numbers of a btrfs inode, decoded by [Item.Inode]. By
// the transaction numbers a caller sees whether the inode has changed since a snapshot.
type Inode struct {
	// Made is the transaction that created the inode; Changed is the last transaction that
	// changed its data or attributes.
	Made, Changed uint64
	Mode          uint32
	Links         uint32
}

// Inode decodes an item of a btrfs tree that describes an inode (type [InodeItem]); it returns false for
// another type.
func (it Item) Inode() (Inode, bool) {
	if it.Type != InodeItem || len(it.Data) < 56 {
		return Inode{}, false
	}
	return Inode{
		Made: le64(it.Data), Changed: le64(it.Data[8:]),
		Links: le32(it.Data[40:]), Mode: le32(it.Data[52:]),
	}, true
}

// A Name is a directory entry decoded from a tree item. From [Item.Names], Inode is the directory that holds
// the name; from [Item.Entry], Inode is the inode or subvolume that the entry names.
type Name struct {
	Inode uint64
	// Subvolume is set if the entry names a nested subvolume, whose id is then Inode.
	Subvolume bool
	Name      string
}

// Names decodes a tree item of the type InodeRef or InodeXref, and returns the names that the inode it.Object
// has in one or more directories.
func (it Item) Names() []Name {
	var names []Name
	for b := it.Data; ; {
		dir, head := it.Offset, 10
		if it.Type == InodeXref {
			head = 18
		}
		if len(b) < head {
			return names
		}
		if it.Type == InodeXref {
			dir = le64(b)
		}
		n := head + int(le16(b[head-2:]))
		if len(b) < n {
			return names
		}
		names = append(names, Name{Inode: dir, Name: string(b[head:n])})
		b = b[n:]
	}
}

// Entry decodes a tree item of the type DirIndex, an entry of the directory it.Object; it returns false for
// another type.
func (it Item) Entry() (Name, bool) {
	const head, inodeItem = 30, 1
	if it.Type != DirIndex || len(it.Data) < head {
		return Name{}, false
	}
	n := head + int(le16(it.Data[27:]))
	if len(it.Data) < n {
		return Name{}, false
	}
	return Name{
		Inode: le64(it.Data), Subvolume: it.Data[8] != inodeItem, Name: string(it.Data[head:n]),
	}, true
}

// NewExtent returns how many bytes on disk a data extent occupies (a tree item of the type ExtentData) if a
// transaction later than after wrote it; 0 for older extents, holes and other items.
func (it Item) NewExtent(after uint64) int64 {
	const inline, head = 0, 21
	if it.Type != ExtentData || len(it.Data) < head || le64(it.Data) <= after {
		return 0
	}
	if it.Data[20] == inline {
		return int64(len(it.Data) - head)
	}
	if len(it.Data) < 53 || le64(it.Data[21:]) == 0 {
		return 0
	}
	return int64(le64(it.Data[29:]))
}

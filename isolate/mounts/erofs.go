//go:build linux

package mounts

import (
	"bytes"
	"encoding/binary"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Sizes and offsets of an EROFS image, in bytes (fs/erofs/erofs_fs.h in Linux). The image that whiteoutImage makes
// has one block with the superblock, then the inodes, and then the directories, each of which begins a block.
const (
	erofsBlock = 4096
	erofsSuper = 1024 // where the superblock begins
	erofsInode = 32   // a compact inode
	erofsEntry = 12   // an entry of a directory, without its name
)

// The inodes of an image by number. Number 0 is unused, since programs take it for a removed entry.
const (
	erofsRoot     = 1
	erofsWhiteout = 2 // has a name for each whiteout
	erofsFirst    = 3 // of the directories below the root
)

// The types of a directory's entries.
const (
	erofsTypeDir  = 2
	erofsTypeChar = 3
)

// whiteoutImage returns an EROFS image with the directories of hidden and, in each, a whiteout for each name in Absent.
// The same hidden results in the same image. It returns nil if hidden has more than the image can hold.
func whiteoutImage(hidden []Hidden) []byte {
	dirs := map[string]map[string]uint64{".": {}} // by path: the inode numbers of the entries
	names := []string{"."}
	for _, h := range hidden {
		for dir := h.Dir; dirs[dir] == nil; dir = path.Dir(dir) {
			dirs[dir] = map[string]uint64{}
			names = append(names, dir)
		}
	}
	slices.Sort(names)
	numbers := map[string]uint64{".": erofsRoot}
	next := uint64(erofsFirst)
	for _, dir := range names {
		if dir != "." {
			numbers[dir] = next
			next++
		}
	}
	whiteouts := 0
	for _, h := range hidden {
		for _, name := range h.Absent {
			dirs[h.Dir][name] = erofsWhiteout
		}
	}
	for _, dir := range names { // a directory whose path is also a whiteout's cannot be both
		whiteouts += len(dirs[dir])
		if dir != "." {
			dirs[path.Dir(dir)][path.Base(dir)] = numbers[dir]
		}
	}
	if whiteouts > 0xffff {
		return nil
	}
	inodes := make([]byte, (int(next)*erofsInode+erofsBlock-1)/erofsBlock*erofsBlock)
	image := make([]byte, erofsBlock, erofsBlock+len(inodes)+len(names)*erofsBlock)
	image = append(image, inodes...)
	inodes = image[erofsBlock:] // of the same array: nothing is appended while they are written
	var data []byte
	for _, dir := range names {
		listing := erofsListing(dirs[dir], numbers[dir], numbers[path.Dir(dir)])
		inode := inodes[numbers[dir]*erofsInode:]
		start := uint32((len(image) + len(data)) / erofsBlock)
		putInode(inode, unix.S_IFDIR|0o755, 2, uint32(len(listing)), start, uint32(numbers[dir]))
		data = append(data, listing...)
		data = append(data, make([]byte, -len(data)&(erofsBlock-1))...)
	}
	putInode(inodes[erofsWhiteout*erofsInode:], unix.S_IFCHR, uint16(max(whiteouts, 1)), 0, 0, erofsWhiteout)
	image = append(image, data...)
	putSuper(image[erofsSuper:], next, uint32(len(image)/erofsBlock))
	return image
}

// putSuper writes the superblock of an image with inodes inodes and blocks blocks.
func putSuper(b []byte, inodes uint64, blocks uint32) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], 0xe0f5e1e2)
	b[12] = 12 // blocks of 1<<12 bytes
	le.PutUint16(b[14:], erofsRoot)
	le.PutUint64(b[16:], inodes)
	le.PutUint32(b[36:], blocks)
	le.PutUint32(b[40:], 1) // the block where the inodes begin
	copy(b[48:64], "snapfs-whiteouts")
}

// putInode writes a compact inode with the data of size bytes in whole blocks, from the block start on. For a device
// start is its number.
func putInode(b []byte, mode, links uint16, size, start, number uint32) {
	le := binary.LittleEndian
	le.PutUint16(b[4:], mode)
	le.PutUint16(b[6:], links)
	le.PutUint32(b[8:], size)
	le.PutUint32(b[16:], start)
	le.PutUint32(b[20:], number)
}

// erofsListing returns the data of a directory with these entries, self its own inode number and parent that above it.
// Each block has some of the entries, in the order of their names, and then those names.
func erofsListing(entries map[string]uint64, self, parent uint64) []byte {
	type entry struct {
		name   string
		number uint64
	}
	list := []entry{{".", self}, {"..", parent}}
	for name, number := range entries {
		list = append(list, entry{name, number})
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var data []byte
	for len(list) > 0 {
		n, size := 0, 0
		for n < len(list) && size+erofsEntry+len(list[n].name) <= erofsBlock {
			size += erofsEntry + len(list[n].name)
			n++
		}
		data = append(data, make([]byte, -len(data)&(erofsBlock-1))...)
		var heads, texts bytes.Buffer
		for _, e := range list[:n] {
			kind := byte(erofsTypeDir)
			if e.number == erofsWhiteout {
				kind = erofsTypeChar
			}
			head := binary.LittleEndian.AppendUint64(nil, e.number)
			head = binary.LittleEndian.AppendUint16(head, uint16(n*erofsEntry+texts.Len()))
			heads.Write(append(head, kind, 0))
			texts.WriteString(e.name)
		}
		data = append(append(data, heads.Bytes()...), texts.Bytes()...)
		list = list[n:]
	}
	return data
}

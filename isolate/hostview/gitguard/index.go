package gitguard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
)

// errIndex means that an index of git's has a path that leads out of the work tree, or differs from the
// format that git writes.
var errIndex = errors.New("the index of the repository names a file outside of it, or cannot be read")

// maxIndex is the size in bytes of the largest git index that a [Guard] checks: that of half a million files.
const maxIndex = 64 << 20

// isIndex reports whether git reads a file of this name as its index, or as the part of an index that several
// share.
func isIndex(name string) bool { return name == "index" || strings.HasPrefix(name, "sharedindex.") }

const (
	indexHash  = 20 // the size of a hash: a Guard lets no repository have another
	indexStat  = 40 // the size of an entry before its hash
	indexFixed = indexStat + indexHash + 2
	endEntry   = 8 + 4 + indexHash // the size of the extension with the end of the entries
)

// An index is the text of git's index while it is read. Git trusts the paths in it: "git checkout ." writes to
// "../../x". See gitformat-index(5).
type index struct {
	text   []byte
	starts []int  // where each entry begins
	whole  []bool // whether an entry has all of its path, and none of the one before
	end    int    // of the entries
}

// checkIndex returns an error if a path in a git index leads out of the work tree. A file with the name of an
// index but another format has no paths, and is no error.
func checkIndex(text []byte) error {
	if len(text) < 12 || string(text[:4]) != "DIRC" {
		return nil // git does not read it either
	}
	x := &index{text: text, end: 12}
	version, count := binary.BigEndian.Uint32(text[4:]), binary.BigEndian.Uint32(text[8:])
	if version < 2 || version > 4 {
		return errIndex
	}
	last := ""
	for range count {
		name, ok := x.entry(version == 4, last)
		if !ok || name != "" && !insideTop(strings.TrimSuffix(name, "/")) {
			return errIndex
		}
		last = name
	}
	if !x.extensions() {
		return errIndex
	}
	return nil
}

// entry reads the next entry of a git index and returns its path. With compressed, the path begins as last,
// that of the entry before. It returns false for an entry that it cannot read.
func (x *index) entry(compressed bool, last string) (string, bool) {
	start, at := x.end, x.end+indexFixed
	if at+2 > len(x.text) {
		return "", false
	}
	flags := binary.BigEndian.Uint16(x.text[at-2:])
	if flags&0x4000 != 0 { // there are more flags
		at += 2
	}
	prefix := ""
	if compressed {
		strip, size := varint(x.text[at:])
		if size == 0 || strip > uint64(len(last)) {
			return "", false
		}
		at += size
		prefix = last[:len(last)-int(strip)]
	}
	length := bytes.IndexByte(x.text[at:min(len(x.text), at+maxName)], 0)
	name := prefix + string(x.text[at:at+max(length, 0)])
	if want := int(flags & 0xfff); length < 0 || len(name) > maxName || want != min(len(name), 0xfff) {
		return "", false // git believes the length, or looks for the zero
	}
	x.starts, x.whole = append(x.starts, start), append(x.whole, prefix == "")
	x.end = at + length + 1
	if !compressed {
		x.end = start + (at-start+length+8)&^7
	}
	return name, x.end <= len(x.text)
}

// maxName is larger, in bytes, than any path that a system call takes; a git index with a longer path is
// refused.
const maxName = 1 << 13

// varint reads a number of a git index, encoded in several bytes, at the beginning of text. It returns the
// number and its size in bytes, or size 0 if there is none.
func varint(text []byte) (value uint64, size int) {
	for i, c := range text[:min(len(text), 8)] {
		if i > 0 {
			value = (value + 1) << 7
		}
		value += uint64(c & 127)
		if c < 128 {
			return value, i + 1
		}
	}
	return 0, 0
}

// extensions reports whether the extensions, which follow the entries of a git index, are as git writes them.
// Two extensions say where entries are, and git reads them there: it must be the same place.
func (x *index) extensions() bool {
	at, end := x.end, len(x.text)-indexHash
	for at+8 <= end {
		kind, size := string(x.text[at:at+4]), int(binary.BigEndian.Uint32(x.text[at+4:]))
		at += 8
		if size > end-at {
			return false
		}
		body := x.text[at : at+size]
		at += size
		switch kind {
		case "EOIE":
			if size != endEntry-8 || int(binary.BigEndian.Uint32(body)) != x.end {
				return false
			}
		case "IEOT":
			if !x.blocks(body) {
				return false
			}
		}
	}
	return at == end
}

// blocks reports whether the offsets in table, an extension of a git index, are those at which entries begin.
// Git reads the blocks of entries there in parallel.
func (x *index) blocks(table []byte) bool {
	if len(table) < 4 || len(table)%8 != 4 {
		return false
	}
	n := uint64(0)
	for table = table[4:]; len(table) > 0; table = table[8:] {
		at, count := binary.BigEndian.Uint32(table), binary.BigEndian.Uint32(table[4:])
		if n >= uint64(len(x.starts)) || x.starts[n] != int(at) || !x.whole[n] {
			return false
		}
		n += uint64(count)
	}
	return n == uint64(len(x.starts))
}

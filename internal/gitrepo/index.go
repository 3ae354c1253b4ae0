package gitrepo

import (
	"bytes"
	"cmp"
	"crypto/sha1" //nolint:gosec // the format's hash
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// An Index is git's index (the file .git/index): the list of files that the next commit will hold.
type Index struct {
	Entries []IndexEntry // sorted by name and stage
}

// An IndexEntry is one file in git's index: its name, mode and blob, and the file attributes by which git
// notices that the file in the worktree has changed.
type IndexEntry struct {
	// Stat is what git knows of the file in the worktree; zero makes git read it again.
	Stat [24 + 16]byte
	Mode uint32
	ID   ID
	// Flags without the length of the name; Extended are those of version 3.
	Flags, Extended uint16
	Name            string
}

const (
	flagExtended = 0x4000
	stageMask    = 0x3000
	nameMask     = 0x0fff
	// IntentToAdd is the flag in [IndexEntry.Extended] of a file that git add -N has announced without adding
	// its content.
	IntentToAdd = 0x2000
)

// Stage returns 0 for a normal entry. During an unresolved merge a file has up to three entries: stage 1 is
// the base, 2 ours and 3 theirs.
func (e *IndexEntry) Stage() int { return int(e.Flags & stageMask >> 12) }

// ErrSplit is an ErrFormat: an index that refers to another file for most entries (git update-index --split-index).
var ErrSplit = fmt.Errorf("a split index is %w", ErrFormat)

// ParseIndex parses the content of a git index file of version 2, 3 or 4. It drops the optional extensions,
// which git makes again. Errors: ErrDamaged; ErrFormat for a split or sparse index.
func ParseIndex(data []byte) (*Index, error) {
	damaged := fmt.Errorf("index: %w", ErrDamaged)
	if len(data) < 12+20 || string(data[:4]) != "DIRC" {
		return nil, damaged
	}
	if sum := sha1.Sum(data[:len(data)-20]); sum != [20]byte(data[len(data)-20:]) && ID(data[len(data)-20:]) != (ID{}) { //nolint:gosec // the format's hash
		return nil, damaged
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if version < 2 || version > 4 {
		return nil, fmt.Errorf("index of version %d is %w", version, ErrFormat)
	}
	rest := data[12 : len(data)-20]
	x := &Index{}
	before := ""
	for range count {
		e, n, ok := parseIndexEntry(rest, version, before)
		if !ok {
			return nil, damaged
		}
		if e.Name == "" { // the entry replaces one of the shared index
			return nil, ErrSplit
		}
		x.Entries, rest, before = append(x.Entries, e), rest[n:], e.Name
	}
	for len(rest) > 0 {
		if len(rest) < 8 || uint64(binary.BigEndian.Uint32(rest[4:])) > uint64(len(rest)-8) {
			return nil, damaged
		}
		if rest[0] < 'A' || rest[0] > 'Z' { // git must understand it
			return nil, fmt.Errorf("index with the extension %.4q is %w", rest, ErrFormat)
		}
		rest = rest[8+binary.BigEndian.Uint32(rest[4:]):]
	}
	return x, nil
}

// parseIndexEntry parses the index entry at the beginning of data; n is its length in bytes. before is the
// name of the preceding entry, because in version 4 a name holds only what differs from that.
func parseIndexEntry(data []byte, version uint32, before string) (e IndexEntry, n int, ok bool) {
	const fixed = 62
	if len(data) < fixed {
		return e, 0, false
	}
	copy(e.Stat[:24], data)
	copy(e.Stat[24:], data[28:40])
	e.Mode = binary.BigEndian.Uint32(data[24:])
	e.ID = ID(data[40:60])
	flags := binary.BigEndian.Uint16(data[60:])
	e.Flags, n = flags&^(nameMask|flagExtended), fixed
	if flags&flagExtended != 0 {
		if version < 3 || len(data) < n+2 {
			return e, 0, false
		}
		e.Extended = binary.BigEndian.Uint16(data[n:])
		n += 2
	}
	if version == 4 {
		strip, used, ok := readStrip(data[n:])
		if !ok || strip > len(before) {
			return e, 0, false
		}
		n += used
		e.Name = before[:len(before)-strip]
	}
	end := bytes.IndexByte(data[n:], 0)
	if end < 0 {
		return e, 0, false
	}
	e.Name += string(data[n : n+end])
	n += end + 1
	if version < 4 {
		n = (n - 1 + 8) &^ 7
	}
	return e, n, n <= len(data)
}

// readStrip decodes a number at the beginning of a name in an index of version 4: how many bytes to drop from
// the end of the preceding entry's name before the new text is appended. used is the length of the encoding.
func readStrip(data []byte) (strip, used int, ok bool) {
	n, err := readBack(&sliceReader{data: data, at: &used})
	return int(n), used, err == nil && n >= 0 && n < 1<<20
}

type sliceReader struct {
	data []byte
	at   *int
}

func (s *sliceReader) ReadByte() (byte, error) {
	if *s.at >= len(s.data) {
		return 0, ErrDamaged
	}
	*s.at++
	return s.data[*s.at-1], nil
}

// Sort sorts the index entries by name and then stage, as git demands of an index file.
func (x *Index) Sort() {
	slices.SortFunc(x.Entries, func(a, b IndexEntry) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Stage(), b.Stage()))
	})
}

// Bytes returns the content of the index file, in version 2, or in version 3 if an entry has extended flags.
func (x *Index) Bytes() []byte {
	version := uint32(2)
	for _, e := range x.Entries {
		if e.Extended != 0 {
			version = 3
		}
	}
	b := []byte("DIRC")
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint32(b, uint32(len(x.Entries)))
	for _, e := range x.Entries {
		start := len(b)
		b = append(b, e.Stat[:24]...)
		b = binary.BigEndian.AppendUint32(b, e.Mode)
		b = append(b, e.Stat[24:36]...)
		b = append(b, e.ID[:]...)
		flags := e.Flags | uint16(min(len(e.Name), nameMask))
		if e.Extended != 0 {
			b = binary.BigEndian.AppendUint16(b, flags|flagExtended)
			b = binary.BigEndian.AppendUint16(b, e.Extended)
		} else {
			b = binary.BigEndian.AppendUint16(b, flags)
		}
		b = append(b, e.Name...)
		b = append(b, make([]byte, 8-(len(b)-start)%8)...)
	}
	sum := sha1.Sum(b) //nolint:gosec // the format's hash
	return append(b, sum[:]...)
}

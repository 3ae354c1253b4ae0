package fingerprint

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
	"slices"
)

// A Source is one labelled file whose content a [Set] recognises.
type Source struct {
	// Kind is the file's label, such as "secret".
	Kind string `json:"kind"`
	// Name is the file's path.
	Name string `json:"name"`
	// Stamp identifies this version of the file, so that it is read once; see [Builder.Has].
	Stamp string `json:"stamp,omitempty"`
}

// A value is a text of up to maxValue bytes that a set recognises as a whole, such as a password. It is a value
// in the memory of a set and has no part of the text.
type value struct {
	anchor uint32 // hash of its first anchorLen bytes
	length uint32
	source uint32
	line   uint32 // of the file, from 1; 0 for the whole file
	sum    uint64 // hash of all its bytes
}

// A block is blockLen bytes of a file that a set recognises, by their hash alone.
type block struct {
	sum    uint64
	source uint32
}

// Lengths in bytes of what a set recognises: of a block of a file, of the beginning of a value by which it is
// looked up, and of the shortest and longest value.
const (
	blockLen  = 32
	anchorLen = 8
	minValue  = anchorLen
	maxValue  = 4 << 10
)

// A Set recognises the content of labelled files in other texts. [Builder.Set] and [Load] make it. Its methods do
// not change it and are safe for concurrent use.
type Set struct {
	key     uint64
	sources []Source
	values  []value // sorted by anchor
	blocks  []block // sorted by sum
	anchors bitmap  // of values
	sums    bitmap  // of blocks
	secret  bool    // a source is of the kind Secret
	other   bool    // a source is of another kind
}

// stored is a set in the form that [Set.Encode] writes.
type stored struct {
	Format  int      `json:"format"`
	Key     uint64   `json:"key"`
	Sources []Source `json:"sources"`
	Values  []byte   `json:"values"`
	Blocks  []byte   `json:"blocks"`
}

// Sizes in bytes of a stored value and a stored block.
const (
	valueSize = 4*4 + 8
	blockSize = 8 + 4
)

// Encode returns the set in a form that [Load] reads. It has no content of the files, but guesses about them can be
// checked with it.
func (s *Set) Encode() ([]byte, error) {
	out := stored{Format: 1, Key: s.key, Sources: s.sources}
	for _, v := range s.values {
		for _, n := range []uint32{v.anchor, v.length, v.source, v.line} {
			out.Values = binary.LittleEndian.AppendUint32(out.Values, n)
		}
		out.Values = binary.LittleEndian.AppendUint64(out.Values, v.sum)
	}
	for _, b := range s.blocks {
		out.Blocks = binary.LittleEndian.AppendUint64(out.Blocks, b.sum)
		out.Blocks = binary.LittleEndian.AppendUint32(out.Blocks, b.source)
	}
	return json.Marshal(out)
}

// Load returns the set that [Set.Encode] wrote as text. A damaged text is an error.
func Load(text []byte) (*Set, error) {
	var in stored
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, err
	}
	if in.Format != 1 || len(in.Values)%valueSize != 0 || len(in.Blocks)%blockSize != 0 {
		return nil, errors.New("the fingerprints of labelled files are damaged, or of another version of snapfs")
	}
	s := &Set{key: in.Key, sources: in.Sources}
	for b := in.Values; len(b) > 0; b = b[valueSize:] {
		n := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
		s.values = append(s.values, value{anchor: n(0), length: n(1), source: n(2), line: n(3), sum: binary.LittleEndian.Uint64(b[16:])})
	}
	for b := in.Blocks; len(b) > 0; b = b[blockSize:] {
		s.blocks = append(s.blocks, block{sum: binary.LittleEndian.Uint64(b), source: binary.LittleEndian.Uint32(b[8:])})
	}
	for _, v := range s.values {
		if int(v.source) >= len(s.sources) || v.length < minValue || v.length > maxValue {
			return nil, errors.New("the fingerprints of labelled files are damaged")
		}
	}
	for _, b := range s.blocks {
		if int(b.source) >= len(s.sources) {
			return nil, errors.New("the fingerprints of labelled files are damaged")
		}
	}
	s.index()
	return s, nil
}

// Empty reports whether the set recognises nothing. s may be nil.
func (s *Set) Empty() bool { return s == nil || len(s.values)+len(s.blocks) == 0 }

// index sorts the values and blocks of the set, drops those that it has twice, and makes its bitmaps. Of two equal
// ones that of a file of secrets stays, and else that whose source comes first.
func (s *Set) index() {
	bySource := func(a, b uint32) int {
		one, two := s.sources[a].Kind == Secret, s.sources[b].Kind == Secret
		switch {
		case one == two:
			return cmp.Compare(a, b)
		case one:
			return -1
		}
		return 1
	}
	slices.SortStableFunc(s.values, func(a, b value) int {
		return cmp.Or(cmp.Compare(a.anchor, b.anchor), cmp.Compare(a.length, b.length), cmp.Compare(a.sum, b.sum), bySource(a.source, b.source))
	})
	s.values = slices.CompactFunc(s.values, func(a, b value) bool { return a.anchor == b.anchor && a.length == b.length && a.sum == b.sum })
	slices.SortStableFunc(s.blocks, func(a, b block) int {
		return cmp.Or(cmp.Compare(a.sum, b.sum), bySource(a.source, b.source))
	})
	s.blocks = slices.CompactFunc(s.blocks, func(a, b block) bool { return a.sum == b.sum })
	for _, one := range s.sources {
		s.secret, s.other = s.secret || one.Kind == Secret, s.other || one.Kind != Secret
	}
	s.anchors, s.sums = newBitmap(len(s.values)), newBitmap(len(s.blocks))
	for _, v := range s.values {
		s.anchors.add(v.anchor)
	}
	for _, b := range s.blocks {
		s.sums.add(uint32(b.sum >> 32))
	}
}

// A bitmap is a Bloom filter with one hash function: it quickly rules out most hashes that a set does not have.
type bitmap struct {
	words []uint64
	shift uint
}

// newBitmap returns a bitmap for n hashes, of 16 to 32 bits for each, and at least 512 bytes.
func newBitmap(n int) bitmap {
	size := max(12, bits.Len(uint(n))+4) // as a power of two, in bits
	return bitmap{words: make([]uint64, 1<<(size-6)), shift: uint(32 - size)}
}

func (b *bitmap) add(hash uint32) {
	at := hash >> b.shift
	b.words[at>>6] |= 1 << (at & 63)
}

func (b *bitmap) has(hash uint32) bool {
	at := hash >> b.shift
	return b.words[at>>6]>>(at&63)&1 != 0
}

// multiplier is the base of the rolling hash of blocks, modulo 2^64.
const multiplier = 0x9e3779b97f4a7c15

// leaving is the factor in the rolling hash of a block for the byte that leaves it: multiplier to the power of
// blockLen.
var leaving = power(multiplier, blockLen)

func power(base uint64, n int) uint64 {
	p := uint64(1)
	for range n {
		p *= base
	}
	return p
}

// mix spreads the bits of a hash, with the key of a set, over all 64.
func mix(key, h uint64) uint64 {
	h ^= key
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}

// sumOf returns the hash of a whole value.
func sumOf(key uint64, text []byte) uint64 {
	h := uint64(0xcbf29ce484222325) ^ key
	for len(text) >= 8 {
		h = bits.RotateLeft64(h^binary.LittleEndian.Uint64(text)*0x9fb21c651e98df25, 27)*0xd6e8feb86659fd93 + 0x52dce729
		text = text[8:]
	}
	for _, c := range text {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return mix(key, h)
}

// anchorOf returns the hash of the first anchorLen bytes of a value.
func anchorOf(key uint64, text []byte) uint32 {
	return uint32(mix(key, binary.BigEndian.Uint64(text)) >> 32)
}

// Has reports whether the set recognises a version of the file called name with the label kind.
func (s *Set) Has(kind, name string) bool {
	return slices.ContainsFunc(s.sources, func(one Source) bool { return one.Kind == kind && one.Name == name })
}

package gitrepo

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
)

// A pack is a pack file, which holds many objects, and its index file, which holds their offsets. Both are
// open; the pack's store closes them.
type pack struct {
	index, data *os.File
	size        int64 // of the pack
	fanout      [256]uint32
	large       int64 // number of 64-bit offsets
	limit       int64
}

func (p *pack) close() {
	p.index.Close()
	p.data.Close()
}

const (
	indexHeader = 8 + 256*4
	packTrailer = 20
	maxPacks    = 10_000
	maxDeltas   = 4_096 // as git's own limit
)

// allPacks returns the pack files of an object directory, open. The first call opens them; closing the store
// closes them.
func (s *store) allPacks() ([]*pack, error) {
	if s.listed {
		return s.packs, nil
	}
	list, err := s.dir.List("pack")
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		name, ok := strings.CutSuffix(e.Name, ".idx")
		if !ok {
			continue
		}
		p, err := openPack(s.dir.In("pack"), name, s.limit)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile, or incomplete
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		if s.packs = append(s.packs, p); len(s.packs) > maxPacks {
			return nil, fmt.Errorf("more than %d packs: %w", maxPacks, ErrTooLarge)
		}
	}
	s.listed = true
	return s.packs, nil
}

func openPack(d Dir, name string, limit int64) (p *pack, err error) {
	p = &pack{limit: limit}
	if p.index, err = d.Open(name + ".idx"); err != nil {
		return nil, err
	}
	if p.data, err = d.Open(name + ".pack"); err != nil {
		p.index.Close()
		return nil, err
	}
	if err := p.check(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// check verifies the pack's index file: its header, its fan-out table (counts of objects by first byte), and
// that its size fits the number of objects in it.
func (p *pack) check() error {
	var head [indexHeader]byte
	if _, err := p.index.ReadAt(head[:], 0); err != nil {
		return fmt.Errorf("index: %w", ErrDamaged)
	}
	if string(head[:4]) != "\xfftOc" || binary.BigEndian.Uint32(head[4:]) != 2 {
		return fmt.Errorf("index of another version: %w", ErrFormat)
	}
	before := uint32(0)
	for i := range p.fanout {
		p.fanout[i] = binary.BigEndian.Uint32(head[8+4*i:])
		if p.fanout[i] < before {
			return fmt.Errorf("index: %w", ErrDamaged)
		}
		before = p.fanout[i]
	}
	index, err := p.index.Stat()
	if err != nil {
		return err
	}
	data, err := p.data.Stat()
	if err != nil {
		return err
	}
	p.size = data.Size() - packTrailer
	rest := index.Size() - indexHeader - 28*int64(before) - 40
	if p.large = rest / 8; rest < 0 || rest%8 != 0 || p.large > int64(before) || p.size < 12 {
		return fmt.Errorf("size: %w", ErrDamaged)
	}
	return nil
}

// find returns the offset of the object id in the pack file, and whether the pack has the object.
func (p *pack) find(id ID) (at int64, found bool, err error) {
	low, high := uint32(0), p.fanout[id[0]]
	if id[0] > 0 {
		low = p.fanout[id[0]-1]
	}
	var name ID
	for low < high {
		middle := low + (high-low)/2
		if _, err := p.index.ReadAt(name[:], indexHeader+20*int64(middle)); err != nil {
			return 0, false, err
		}
		switch c := bytes.Compare(name[:], id[:]); {
		case c == 0:
			at, err := p.offset(middle)
			return at, err == nil, err
		case c < 0:
			low = middle + 1
		default:
			high = middle
		}
	}
	return 0, false, nil
}

// offset returns the offset in the pack file of the n-th object of the pack's index, which is sorted by id.
func (p *pack) offset(n uint32) (int64, error) {
	all := int64(p.fanout[255])
	var four [4]byte
	if _, err := p.index.ReadAt(four[:], indexHeader+24*all+4*int64(n)); err != nil {
		return 0, err
	}
	at := int64(binary.BigEndian.Uint32(four[:]))
	if at > math.MaxInt32 {
		at &= math.MaxInt32
		var eight [8]byte
		if at >= p.large {
			return 0, fmt.Errorf("offset: %w", ErrDamaged)
		}
		if _, err := p.index.ReadAt(eight[:], indexHeader+28*all+8*at); err != nil {
			return 0, err
		}
		at = int64(binary.BigEndian.Uint64(eight[:]))
	}
	if at < 12 || at >= p.size {
		return 0, fmt.Errorf("offset: %w", ErrDamaged)
	}
	return at, nil
}

// The kinds of pack entries that are deltas. A delta names the object that it changes by its offset in the
// same pack, or by its ID.
const (
	offsetDelta = 6
	nameDelta   = 7
)

// read returns the object at an offset of the pack file: an object stored whole, or one made by applying a
// chain of deltas to such an object. Each delta may be as large as the limit for an object, and all deltas of
// a chain together twice that.
func (p *pack) read(at int64) (Object, error) {
	var deltas [][]byte
	total := int64(0)
	for {
		e, err := p.entry(at)
		if err != nil {
			return Object{}, err
		}
		if e.base == 0 {
			return applyDeltas(Object{Kind(e.kind), e.data}, deltas, p.limit)
		}
		total += int64(len(e.data))
		if deltas = append(deltas, e.data); len(deltas) > maxDeltas || total > 2*p.limit {
			return Object{}, fmt.Errorf("chain of deltas: %w", ErrTooLarge)
		}
		at = e.base
	}
}

func applyDeltas(o Object, deltas [][]byte, limit int64) (Object, error) {
	for i := len(deltas) - 1; i >= 0; i-- {
		data, err := applyDelta(o.Data, deltas[i], limit)
		if err != nil {
			return o, err
		}
		o.Data = data
	}
	return o, nil
}

// A packEntry is one entry of a pack file: a whole object, or a delta with the offset of the object that the
// delta changes.
type packEntry struct {
	kind byte
	base int64
	data []byte
}

func (p *pack) entry(at int64) (e packEntry, err error) {
	in := bufio.NewReader(io.NewSectionReader(p.data, at, p.size-at))
	damaged := fmt.Errorf("pack: %w", ErrDamaged)
	c, err := in.ReadByte()
	if err != nil {
		return e, damaged
	}
	e.kind = c >> 4 & 7
	size, shift := int64(c&15), 4
	for c&0x80 != 0 {
		if c, err = in.ReadByte(); err != nil || shift > 55 {
			return e, damaged
		}
		size |= int64(c&0x7f) << shift
		shift += 7
	}
	switch e.kind {
	case byte(Commit), byte(Tree), byte(Blob), byte(Tag):
	case offsetDelta:
		back, err := readBack(in)
		if err != nil || back <= 0 || back > at-12 {
			return e, damaged
		}
		e.base = at - back
	case nameDelta:
		var id ID
		if _, err := io.ReadFull(in, id[:]); err != nil {
			return e, damaged
		}
		base, found, err := p.find(id)
		if err != nil || !found {
			return e, errors.Join(err, damaged)
		}
		e.base = base
	default:
		return e, damaged
	}
	z, err := zlib.NewReader(in)
	if err != nil {
		return e, damaged
	}
	e.data, err = readExactly(z, size, p.limit)
	return e, err
}

// readBack reads a number in the encoding that git uses for the distance from a delta back to its base
// object: 7 bits a byte, the highest first.
func readBack(in io.ByteReader) (int64, error) {
	c, err := in.ReadByte()
	n := int64(c & 0x7f)
	for err == nil && c&0x80 != 0 {
		if n > math.MaxInt64>>8 {
			return 0, ErrDamaged
		}
		c, err = in.ReadByte()
		n = (n+1)<<7 | int64(c&0x7f)
	}
	return n, err
}

// applyDelta returns the object that results when a git delta is applied to the object base. Errors:
// ErrTooLarge if the result has more than limit bytes; ErrDamaged.
func applyDelta(base, delta []byte, limit int64) ([]byte, error) {
	damaged := fmt.Errorf("delta: %w", ErrDamaged)
	from, n := binary.Uvarint(delta)
	if n <= 0 || from != uint64(len(base)) {
		return nil, damaged
	}
	delta = delta[n:]
	size, n := binary.Uvarint(delta)
	if n <= 0 {
		return nil, damaged
	}
	if size > uint64(limit) {
		return nil, fmt.Errorf("%d bytes, at most %d: %w", size, limit, ErrTooLarge)
	}
	delta = delta[n:]
	out := make([]byte, 0, min(size, 1<<20))
	for len(delta) > 0 {
		c := delta[0]
		delta = delta[1:]
		var part []byte
		if c&0x80 == 0 { // insert
			if c == 0 || int(c) > len(delta) {
				return nil, damaged
			}
			part, delta = delta[:c], delta[c:]
		} else { // copy
			var at, count uint64
			for i := range 7 {
				if c>>i&1 == 0 {
					continue
				}
				if len(delta) == 0 {
					return nil, damaged
				}
				if i < 4 {
					at |= uint64(delta[0]) << (8 * i)
				} else {
					count |= uint64(delta[0]) << (8 * (i - 4))
				}
				delta = delta[1:]
			}
			if count == 0 {
				count = 0x10000
			}
			if at+count > uint64(len(base)) {
				return nil, damaged
			}
			part = base[at : at+count]
		}
		if uint64(len(out)+len(part)) > size {
			return nil, damaged
		}
		out = append(out, part...)
	}
	if uint64(len(out)) != size {
		return nil, damaged
	}
	return out, nil
}

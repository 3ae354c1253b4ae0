package fingerprint

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"io"
)

// maxPacked is how many bytes of compressed data one search reads at most, and maxPacks how many pieces of it. A text
// with more is an [ErrTooLarge].
const (
	maxPacked = 256 << 20
	maxPacks  = 10_000
)

// magicLen is the length in bytes of the beginnings by which compressed data is recognised.
const magicLen = 4

// The beginnings of compressed data: of gzip, and of a file in a zip archive.
var (
	gzipMagic = []byte{0x1f, 0x8b, 8}
	zipMagic  = []byte("PK\x03\x04")
)

// unpack searches the compressed data that begins in text, from the byte from on. rest returns a reader of the text
// from a place in it.
func (s *search) unpack(text []byte, from int, how string, depth int, rest func(at int) io.Reader) {
	if depth >= maxDepth {
		return
	}
	if from == 0 && len(text) > 2 && text[0]&0x0f == 8 && binary.BigEndian.Uint16(text)%31 == 0 { // as git stores objects
		if r, err := zlib.NewReader(rest(0)); err == nil {
			s.packed(r, join(how, "compressed with zlib"), depth)
		}
	}
	for at := from; !s.full(); at++ {
		i := bytes.Index(text[min(at, len(text)):], gzipMagic)
		if i < 0 {
			break
		}
		at += i
		if r, err := gzip.NewReader(rest(at)); err == nil {
			r.Multistream(false)
			s.packed(r, join(how, "compressed with gzip"), depth)
		}
	}
	for at := from; !s.full(); at++ {
		i := bytes.Index(text[min(at, len(text)):], zipMagic)
		if i < 0 {
			break
		}
		at += i
		if r := zipped(rest(at)); r != nil {
			s.packed(r, join(how, "compressed in a zip archive"), depth)
		}
	}
}

// zipped returns the content of a compressed file of a zip archive, whose header r begins with; nil for another one.
func zipped(r io.Reader) io.Reader {
	var head [30]byte
	const deflated = 8
	if _, err := io.ReadFull(r, head[:]); err != nil || binary.LittleEndian.Uint16(head[8:]) != deflated {
		return nil // the content is there as it is, or in a form that is not read
	}
	names := int64(binary.LittleEndian.Uint16(head[26:])) + int64(binary.LittleEndian.Uint16(head[28:]))
	if _, err := io.CopyN(io.Discard, r, names); err != nil {
		return nil
	}
	return flate.NewReader(r)
}

// packed searches what r unpacks, up to its end or its first damaged byte.
func (s *search) packed(r io.Reader, how string, depth int) {
	if s.packs++; s.packs > maxPacks {
		s.err = ErrTooLarge
		return
	}
	counted := &io.LimitedReader{R: r, N: s.left + 1}
	s.stream(counted, how, depth+1, nil)
	if s.left = counted.N - 1; s.left < 0 {
		s.left, s.err = 0, ErrTooLarge
	}
}

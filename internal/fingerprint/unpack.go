package fingerprint

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"errors"
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
// from a place in it, or is nil if that is only in text. Then more is set if the text goes on behind its end: data that
// ends there is a cut, unless the next chunk has it from its beginning.
func (s *search) unpack(text []byte, from int, how string, depth int, rest func(at int) io.Reader, more bool) {
	if depth >= maxDepth {
		return
	}
	if rest == nil {
		rest = func(at int) io.Reader { return bytes.NewReader(text[at:]) }
	}
	open := func(at int, name string, open func(io.Reader) (io.Reader, error)) {
		r, err := open(rest(at))
		if err == nil {
			err = s.packed(r, join(how, name), depth)
		}
		if more && at < len(text)-overlap && errors.Is(err, io.ErrUnexpectedEOF) {
			s.cut = true
		}
	}
	if from == 0 && len(text) > 2 && text[0]&0x0f == 8 && binary.BigEndian.Uint16(text)%31 == 0 { // as git stores objects
		open(0, "compressed with zlib", func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) })
	}
	for at := from; !s.full(); at++ {
		i := bytes.Index(text[min(at, len(text)):], gzipMagic)
		if i < 0 {
			break
		}
		at += i
		open(at, "compressed with gzip", gunzipped)
	}
	for at := from; !s.full(); at++ {
		i := bytes.Index(text[min(at, len(text)):], zipMagic)
		if i < 0 {
			break
		}
		at += i
		open(at, "compressed in a zip archive", zipped)
	}
}

func gunzipped(r io.Reader) (io.Reader, error) {
	z, err := gzip.NewReader(r)
	if err == nil {
		z.Multistream(false)
	}
	return z, err
}

// errNotPacked means that a file of a zip archive is not compressed, or in a form that is not read.
var errNotPacked = errors.New("not compressed with deflate")

// zipped returns the content of a compressed file of a zip archive, whose header r begins with; an error for another one.
func zipped(r io.Reader) (io.Reader, error) {
	var head [30]byte
	const deflated = 8
	if _, err := io.ReadFull(r, head[:]); err != nil || binary.LittleEndian.Uint16(head[8:]) != deflated {
		return nil, errNotPacked
	}
	names := int64(binary.LittleEndian.Uint16(head[26:])) + int64(binary.LittleEndian.Uint16(head[28:]))
	if _, err := io.CopyN(io.Discard, r, names); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return flate.NewReader(r), nil
}

// packed searches what r unpacks, up to its end or its first damaged byte. It returns the error of r at that place.
func (s *search) packed(r io.Reader, how string, depth int) error {
	if s.packs++; s.packs > maxPacks {
		s.err = ErrTooLarge
		return s.err
	}
	counted := &countedReader{r: r, left: s.left + 1}
	s.stream(counted, how, depth+1, nil)
	if s.left = counted.left - 1; s.left < 0 {
		s.left, s.err = 0, ErrTooLarge
	}
	return counted.err
}

// A countedReader reads left bytes from r, and keeps the error of r.
type countedReader struct {
	r    io.Reader
	left int64
	err  error
}

func (c *countedReader) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.EOF
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left, c.err = c.left-int64(n), err
	return n, err
}

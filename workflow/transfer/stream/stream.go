// Package stream defines the stream format in which a sandbox's snapshot is sent to another
// machine: a header and a payload, with checksums that prove that the receiver has all of it.
//
//	"snapfs parcel 1\n"
//	frames: length (32 bits, little-endian), CRC-32C of the bytes (32), the bytes
//	an empty frame, then the SHA-256 of everything before it
//
// A stream whose header has a budget begins with "snapfs parcel 2\n", because a program that does not know budgets
// would receive the sandbox without one.
//
// The first frame is the header, a [Header] as JSON; the others are the payload. The reader checks
// each frame before it passes it on. Only the end of the stream proves that it is complete, so
// the receiver must not use the payload before that ([Reader.Read]). The stream is not signed:
// its origin is as trustworthy as the channel.
package stream

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
)

const (
	magic       = "snapfs parcel 1\n"
	magicBudget = "snapfs parcel 2\n"
	// frameSize is the maximum length in bytes of a frame, a piece of the stream with its own checksum, that
	// is written. maxFrame is the maximum length of a frame that is accepted.
	frameSize = 256 << 10
	maxFrame  = 1 << 20
)

// A Header says which snapshot a stream to another machine contains, and on which base. Its content is not
// trusted: [Open] checks only that names are valid.
type Header struct {
	// Sandbox and State are the sender's names. ID is the snapshot's identity, the same on
	// every machine: [catalog.NamedSnapshot.Identity].
	Sandbox string `json:"sandbox"`
	State   string `json:"state"`
	ID      string `json:"id"`
	// Base is the identity of the snapshot to which the payload is a difference, or "".
	Base  string    `json:"base,omitempty"`
	Taken time.Time `json:"taken"`
	// Workspace is the path of the directory on the sender's machine.
	Workspace string `json:"workspace"`
	// Driver is the sender's backend, and Form the format of the payload.
	Driver string        `json:"driver"`
	Form   snapshot.Form `json:"form"`
	// From is the offset in the payload at which this stream resumes. The receiver has the
	// part before it, with the SHA-256 Before.
	From   int64  `json:"from,omitempty"`
	Before string `json:"before,omitempty"`
	// Budget is that of the sandbox, or nil.
	Budget *catalog.SentBudget `json:"budget,omitempty"`
}

func (l *Header) check() error {
	if err := errors.Join(catalog.CheckName(l.Sandbox), catalog.CheckName(l.State)); err != nil {
		return corrupt("header: %v", err)
	}
	for _, id := range []string{l.ID, l.Base} {
		if id != "" && !snapshot.ValidID(id) {
			return corrupt("header: %q is not an id", id)
		}
	}
	if l.ID == "" || !filepath.IsAbs(l.Workspace) || filepath.Clean(l.Workspace) != l.Workspace {
		return corrupt("header names no snapshot of a directory")
	}
	if l.From < 0 || l.From > 0 && !validSum(l.Before) {
		return corrupt("header has no valid position to resume from")
	}
	return nil
}

func corrupt(format string, args ...any) error {
	return &errs.Error{Op: "receive", Kind: errs.ErrCorrupt, Err: fmt.Errorf(format, args...)}
}

// A Writer writes a snapshot's payload as a stream for another machine: with a header, and checksums that
// show a damaged or cut stream.
type Writer struct {
	w   io.Writer
	sum hash.Hash
	buf []byte
}

// NewWriter writes the beginning of a stream for another machine, with the header l, to w, and returns a
// Writer for the payload.
func NewWriter(w io.Writer, l Header) (*Writer, error) {
	p := newWriter(w, sha256.New())
	return p, p.header(l)
}

// header writes the first line of the stream, which names the format, and the header l as the first frame, a
// piece with a checksum.
func (p *Writer) header(l Header) error {
	text, err := exactjson.Encode(l)
	if err == nil {
		start := magic
		if l.Budget != nil {
			start = magicBudget
		}
		err = p.put([]byte(start))
	}
	if err == nil {
		p.buf = append(p.buf, text...)
		err = p.flush()
	}
	return err
}

func newWriter(w io.Writer, sum hash.Hash) *Writer {
	return &Writer{w: w, sum: sum, buf: make([]byte, 8, 8+frameSize)}
}

func (p *Writer) put(b []byte) error {
	p.sum.Write(b)
	_, err := p.w.Write(b)
	return err
}

func (p *Writer) flush() error {
	binary.LittleEndian.PutUint32(p.buf, uint32(len(p.buf)-8))
	binary.LittleEndian.PutUint32(p.buf[4:], crc32.Checksum(p.buf[8:], crc32.MakeTable(crc32.Castagnoli)))
	err := p.put(p.buf)
	p.buf = p.buf[:8]
	return err
}

// Write appends b to the payload of the stream, the content of the snapshot that is sent.
func (p *Writer) Write(b []byte) (n int, err error) {
	for n < len(b) {
		k := min(len(b)-n, 8+frameSize-len(p.buf))
		p.buf = append(p.buf, b[n:n+k]...)
		n += k
		if len(p.buf) == 8+frameSize {
			if err := p.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// flushRest writes the last frame of the stream's payload, a piece of it that may be shorter than the others.
func (p *Writer) flushRest() error {
	if len(p.buf) == 8 {
		return nil
	}
	return p.flush()
}

// Close writes the end of the stream, with the checksum of everything. The receiver accepts no stream without
// it.
func (p *Writer) Close() error {
	if err := p.flushRest(); err != nil {
		return err
	}
	if err := p.flush(); err != nil {
		return err
	}
	_, err := p.w.Write(p.sum.Sum(nil))
	return err
}

// A Reader reads the payload, a snapshot's content, from a stream that another machine sent, and checks its
// checksums.
type Reader struct {
	r    io.Reader
	sum  hash.Hash
	buf  []byte
	rest []byte // part of buf that is not passed on yet
	err  error
	// complete is the offset after the last complete frame; read is the offset after the last
	// byte read.
	complete, read int64
	broken         bool
}

// Open reads the header of the stream r, in which another machine sends a snapshot, and returns a reader of
// its payload. Errors: errs.ErrCorrupt, and those of r.
func Open(r io.Reader) (*Reader, Header, error) {
	p := &Reader{r: r, sum: sha256.New()}
	var l Header
	if err := p.readMagic(); err != nil {
		return nil, l, err
	}
	if err := p.next(); err != nil {
		return nil, l, err
	}
	if err := exactjson.Decode(p.rest, &l); err != nil {
		return nil, l, corrupt("header: %v", err)
	}
	p.rest = nil
	return p, l, l.check()
}

// readMagic reads the first line of the stream, which names the format, and returns an error if it is another
// one.
func (p *Reader) readMagic() error {
	start := make([]byte, len(magic))
	n, err := io.ReadFull(p.r, start)
	p.sum.Write(start)
	p.read = int64(n)
	switch {
	case errors.Is(err, io.EOF):
		return corrupt("empty stream (see the sender's error)")
	case string(start[:n]) != magic[:n] && string(start[:n]) != magicBudget[:n]:
		return corrupt("not a stream of snapfs send")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return corrupt("incomplete stream")
	}
	return err
}

// get reads the next len(b) bytes of the stream into b. ErrCorrupt: the stream ends before.
func (p *Reader) get(b []byte) error {
	_, err := io.ReadFull(p.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt("incomplete stream")
	}
	p.sum.Write(b)
	p.read += int64(len(b))
	return err
}

// next reads the next frame of the stream, a piece with a checksum of its own, into p.rest and checks it.
// p.rest is empty after the last frame.
func (p *Reader) next() error {
	var head [8]byte
	if err := p.get(head[:]); err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	if n > maxFrame {
		return corrupt("invalid frame of %d bytes", n)
	}
	if int64(cap(p.buf)) < n {
		p.buf = make([]byte, n)
	}
	p.rest = p.buf[:n]
	if err := p.get(p.rest); err != nil {
		return err
	}
	if crc32.Checksum(p.rest, crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(head[4:]) {
		return corrupt("damaged in transit")
	}
	if n > 0 {
		p.complete = p.read
	}
	return nil
}

// Read reads the payload of the stream, the content of a snapshot. It returns io.EOF only if everything
// arrived as it was sent.
func (p *Reader) Read(b []byte) (int, error) {
	if len(p.rest) == 0 && p.err == nil {
		if p.err = p.next(); p.err == nil && len(p.rest) == 0 {
			p.err = p.verify()
		} else if p.err != nil {
			p.rest, p.broken = nil, true
		}
	}
	if p.err != nil {
		return 0, p.err
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Broken reports whether the stream with the snapshot ended early or was damaged, so that the transfer can be
// resumed: the payload read so far is the beginning of the sent one.
func (p *Reader) Broken() bool { return p.broken }

func (p *Reader) verify() error {
	want := p.sum.Sum(nil)
	got := make([]byte, len(want))
	if err := p.get(got); err != nil {
		p.broken = true
		return err
	}
	if !bytes.Equal(want, got) {
		return corrupt("damaged in transit: wrong checksum of the whole stream")
	}
	return io.EOF
}

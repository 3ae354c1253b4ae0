// Package parcel is how a state of a sandbox travels: what is in it, then a
// stream, so that whoever unpacks it knows that all of it came, and nothing else.
//
//	"snapfs parcel 1\n"
//	frames: length (32 bits, little-endian), CRC-32C of the bytes (32), the bytes
//	a frame of no bytes, then the SHA-256 of all before it
//
// The first frame is a [Label] as JSON, the others are the stream. A frame is
// checked before it is handed on; whether the whole is complete is known at its
// end, so nothing may be made of it before that ([Reader.Read]). A parcel is not
// signed: it is as good as the way that it came.
package parcel

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
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
)

const (
	magic = "snapfs parcel 1\n"
	// frame is the most of a frame that is written, most what is read.
	frame = 256 << 10
	most  = 1 << 20
)

// A Label says what is in a parcel. It may be anybody's: [Open] has checked that
// names are names, and nothing else of it is to be relied on.
type Label struct {
	// Sandbox and State are what the sender calls it, ID what everybody does:
	// [catalog.Mark.Identity].
	Sandbox string `json:"sandbox"`
	State   string `json:"state"`
	ID      string `json:"id"`
	// Base is the state that the stream is the difference to, or "".
	Base  string    `json:"base,omitempty"`
	Taken time.Time `json:"taken"`
	// Workspace is the directory whose content it is, on the sender's machine.
	Workspace string `json:"workspace"`
	// Driver is what held it there, Form how the stream is written.
	Driver string        `json:"driver"`
	Form   snapshot.Form `json:"form"`
	// From is where in the stream this begins, in bytes: what comes before is with the
	// receiver, and has the SHA-256 Before.
	From   int64  `json:"from,omitempty"`
	Before string `json:"before,omitempty"`
}

func (l *Label) check() error {
	if err := errors.Join(catalog.CheckName(l.Sandbox), catalog.CheckName(l.State)); err != nil {
		return bad("its label: %v", err)
	}
	for _, id := range []string{l.ID, l.Base} {
		if id != "" && !snapshot.ValidID(id) {
			return bad("its label: %q is not an id", id)
		}
	}
	if l.ID == "" || !filepath.IsAbs(l.Workspace) || filepath.Clean(l.Workspace) != l.Workspace {
		return bad("its label names no state of a directory")
	}
	if l.From < 0 || l.From > 0 && !isSum(l.Before) {
		return bad("its label does not say what it goes on from")
	}
	return nil
}

func bad(format string, args ...any) error {
	return &errs.Error{Op: "reading what was sent", Kind: errs.ErrCorrupt, Err: fmt.Errorf(format, args...)}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Writer packs a parcel.
type Writer struct {
	w   io.Writer
	sum hash.Hash
	buf []byte
}

// NewWriter begins a parcel with its label.
func NewWriter(w io.Writer, l Label) (*Writer, error) {
	p := newWriter(w, sha256.New())
	return p, p.label(l)
}

// label writes what a parcel begins with.
func (p *Writer) label(l Label) error {
	text, err := json.Marshal(l)
	if err == nil {
		err = p.put([]byte(magic))
	}
	if err == nil {
		p.buf = append(p.buf, text...)
		err = p.flush()
	}
	return err
}

func newWriter(w io.Writer, sum hash.Hash) *Writer {
	return &Writer{w: w, sum: sum, buf: make([]byte, 8, 8+frame)}
}

func (p *Writer) put(b []byte) error {
	p.sum.Write(b)
	_, err := p.w.Write(b)
	return err
}

func (p *Writer) flush() error {
	binary.LittleEndian.PutUint32(p.buf, uint32(len(p.buf)-8))
	binary.LittleEndian.PutUint32(p.buf[4:], crc32.Checksum(p.buf[8:], castagnoli))
	err := p.put(p.buf)
	p.buf = p.buf[:8]
	return err
}

// Write adds to the stream.
func (p *Writer) Write(b []byte) (n int, err error) {
	for n < len(b) {
		k := min(len(b)-n, 8+frame-len(p.buf))
		p.buf = append(p.buf, b[n:n+k]...)
		n += k
		if len(p.buf) == 8+frame {
			if err := p.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// rest writes the frame that is not full.
func (p *Writer) rest() error {
	if len(p.buf) == 8 {
		return nil
	}
	return p.flush()
}

// Close ends the parcel: without that it is no whole one.
func (p *Writer) Close() error {
	if err := p.rest(); err != nil {
		return err
	}
	if err := p.flush(); err != nil {
		return err
	}
	_, err := p.w.Write(p.sum.Sum(nil))
	return err
}

// A Reader unpacks a parcel.
type Reader struct {
	r    io.Reader
	sum  hash.Hash
	buf  []byte
	rest []byte // of buf, not handed on yet
	err  error
	// whole is how many bytes were read up to the end of the last frame that is one,
	// and read those that were read.
	whole, read int64
	broken      bool
}

// Open reads the label of a parcel. Errors: errs.ErrCorrupt, and those of r.
func Open(r io.Reader) (*Reader, Label, error) {
	p := &Reader{r: r, sum: sha256.New()}
	var l Label
	if err := p.begins(); err != nil {
		return nil, l, err
	}
	if err := p.next(); err != nil {
		return nil, l, err
	}
	if err := json.Unmarshal(p.rest, &l); err != nil {
		return nil, l, bad("its label: %v", err)
	}
	p.rest = nil
	return p, l, l.check()
}

// begins reads the first line.
func (p *Reader) begins() error {
	start := make([]byte, len(magic))
	n, err := io.ReadFull(p.r, start)
	p.sum.Write(start)
	p.read = int64(n)
	switch {
	case errors.Is(err, io.EOF):
		return bad("nothing came: what sends it says why")
	case string(start[:n]) != magic[:n]:
		return bad("it is nothing that snapfs send writes")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return bad("it ends before its end")
	}
	return err
}

// get fills b.
func (p *Reader) get(b []byte) error {
	_, err := io.ReadFull(p.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return bad("it ends before its end")
	}
	p.sum.Write(b)
	p.read += int64(len(b))
	return err
}

// next reads a frame; none is left after the last.
func (p *Reader) next() error {
	var head [8]byte
	if err := p.get(head[:]); err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	if n > most {
		return bad("a frame of %d bytes", n)
	}
	if int64(cap(p.buf)) < n {
		p.buf = make([]byte, n)
	}
	p.rest = p.buf[:n]
	if err := p.get(p.rest); err != nil {
		return err
	}
	if crc32.Checksum(p.rest, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return bad("it was damaged on the way")
	}
	if n > 0 {
		p.whole = p.read
	}
	return nil
}

// Read gives the stream. Only when all came as it was sent does it end with io.EOF.
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

// Broken says that the parcel ended, or was damaged, before its end: what was read is
// a beginning of what was sent.
func (p *Reader) Broken() bool { return p.broken }

func (p *Reader) verify() error {
	want := p.sum.Sum(nil)
	got := make([]byte, len(want))
	if err := p.get(got); err != nil {
		p.broken = true
		return err
	}
	if !bytes.Equal(want, got) {
		return bad("it is not what was sent: its checksum is wrong")
	}
	return io.EOF
}

package sendstream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/snapfs/snapfs/errs"
)

const (
	magic   = "btrfs-stream\x00"
	version = 1
	// most is the longest accepted command of a send stream in bytes, twice the size of the kernel's buffer;
	// a stream with a longer one is invalid (ErrCorrupt). It bounds the memory that a hostile stream can
	// claim.
	most = 128 << 10
	head = 10
)

// An Op is the number that a send stream uses for a command, such as MkFile or Write.
type Op uint16

// The commands of version 1 of btrfs's send stream, such as making or writing a file.
const (
	Subvol Op = iota + 1
	Snapshot
	MkFile
	MkDir
	MkNod
	MkFifo
	MkSock
	Symlink
	Rename
	Link
	Unlink
	RmDir
	SetXattr
	RemoveXattr
	Write
	Clone
	Truncate
	Chmod
	Chown
	Utimes
	End
)

var opNames = [...]string{
	"", "subvol", "snapshot", "mkfile", "mkdir", "mknod", "mkfifo", "mksock", "symlink", "rename", "link", "unlink",
	"rmdir", "set_xattr", "remove_xattr", "write", "clone", "truncate", "chmod", "chown", "utimes", "end",
}

func (o Op) String() string {
	if int(o) < len(opNames) && o > 0 {
		return opNames[o]
	}
	return fmt.Sprintf("command %d", uint16(o))
}

// An attr is the number that a send stream uses for an attribute of a command, such as the path.
type attr uint16

const (
	aUUID      attr = 1
	aTransid   attr = 2
	aSize      attr = 4
	aMode      attr = 5
	aUID       attr = 6
	aGID       attr = 7
	aRdev      attr = 8
	aCtime     attr = 9
	aMtime     attr = 10
	aAtime     attr = 11
	aXattrName attr = 13
	aXattrData attr = 14
	aPath      attr = 15
	aPathTo    attr = 16
	aPathLink  attr = 17
	aOffset    attr = 18
	aData      attr = 19
	aCloneUUID attr = 20
	aClonePath attr = 22
	aCloneFrom attr = 23
	aCloneLen  attr = 24
	aLast      attr = 25
)

// bad returns an ErrCorrupt with a formatted text that says how the stream is invalid.
func bad(format string, args ...any) error {
	return &errs.Error{Op: "reading the stream", Kind: errs.ErrCorrupt, Err: fmt.Errorf(format, args...)}
}

// A command is one decoded command of a send stream. Its attributes are valid until the next command is read.
type command struct {
	op    Op
	parts [aLast][]byte
	has   [aLast]bool
}

func (c *command) bytes(a attr) ([]byte, error) {
	if !c.has[a] {
		return nil, bad("%v lacks its attribute %d", c.op, a)
	}
	return c.parts[a], nil
}

func (c *command) text(a attr) (string, error) {
	b, err := c.bytes(a)
	return string(b), err
}

func (c *command) number(a attr) (uint64, error) {
	b, err := c.bytes(a)
	if err == nil && len(b) != 8 {
		err = bad("attribute %d of %v is no 64-bit number", a, c.op)
	}
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// numbers returns the values of several numeric attributes, given by as, of a command of a send stream, in
// the same order.
func (c *command) numbers(as ...attr) (all []uint64, err error) {
	for _, a := range as {
		n, err := c.number(a)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// sum extends the checksum crc by the bytes p. It is CRC-32C as the kernel uses it for send streams, which
// starts with 0 and inverts nothing.
func sum(crc uint32, p []byte) uint32 {
	return ^crc32.Update(^crc, crc32.MakeTable(crc32.Castagnoli), p)
}

// A reader decodes the commands of a send stream one after another and verifies their checksums.
type reader struct {
	r    io.Reader
	head [head]byte
	buf  []byte
}

func newReader(r io.Reader) (*reader, error) {
	start := make([]byte, len(magic)+4)
	if _, err := io.ReadFull(r, start); err != nil {
		return nil, cut(err)
	}
	if string(start[:len(magic)]) != magic {
		return nil, bad("no stream: wrong magic")
	}
	if v := binary.LittleEndian.Uint32(start[len(magic):]); v != version {
		return nil, bad("stream version %d, want %d", v, version)
	}
	return &reader{r: r}, nil
}

// cut converts err, of reading a send stream: to ErrCorrupt if the stream ended in the middle of a command,
// otherwise err stays.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return bad("the stream ends too early")
	}
	return err
}

func (r *reader) next(c *command) error {
	if _, err := io.ReadFull(r.r, r.head[:]); err != nil {
		return cut(err)
	}
	n, want := binary.LittleEndian.Uint32(r.head[:]), binary.LittleEndian.Uint32(r.head[6:])
	if n > most {
		return bad("a command of %d bytes is too long", n)
	}
	if cap(r.buf) < int(n) {
		r.buf = make([]byte, n, most)
	}
	r.buf = r.buf[:n]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return cut(err)
	}
	*c = command{op: Op(binary.LittleEndian.Uint16(r.head[4:]))}
	clear(r.head[6:])
	if sum(sum(0, r.head[:]), r.buf) != want {
		return bad("wrong checksum of %v", c.op)
	}
	return c.parse(r.buf)
}

func (c *command) parse(b []byte) error {
	for len(b) > 0 {
		if len(b) < 4 {
			return bad("%v ends inside an attribute", c.op)
		}
		a, n := attr(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:]))
		if b = b[4:]; n > len(b) {
			return bad("%v ends inside an attribute", c.op)
		}
		if a < aLast {
			c.parts[a], c.has[a] = b[:n], true
		}
		b = b[n:]
	}
	return nil
}

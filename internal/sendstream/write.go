package sendstream

import (
	"encoding/binary"
	"errors"
	"io"
	"math"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Chunk is the largest number of bytes of a file's content in one command of a send stream. It is the
// kernel's own limit, 48 KiB.
const Chunk = 48 << 10

// A Writer writes a btrfs send stream. After an error it writes nothing more; [Writer.End] returns the first
// error.
type Writer struct {
	w   io.Writer
	buf []byte
	err error
}

// NewWriter writes the beginning of a send stream to w. With onBase the stream describes the difference to a
// base, otherwise a whole tree.
func NewWriter(w io.Writer, onBase bool) *Writer {
	s := &Writer{w: w, buf: make([]byte, 0, Chunk+8<<10)}
	_, s.err = w.Write(binary.LittleEndian.AppendUint32([]byte(magic), version))
	var none [16]byte
	op := Subvol
	if onBase {
		op = Snapshot
	}
	s.do(op, part{aPath, "tree"}, part{aUUID, string(none[:])}, number(aTransid, 1))
	return s
}

// Err returns the first error of writing the stream, or nil.
func (s *Writer) Err() error { return s.err }

// End writes the command that ends the send stream, and returns the first error of the writer.
func (s *Writer) End() error {
	s.do(End)
	return s.err
}

type part struct {
	attr  attr
	value string
}

func number(a attr, n uint64) part {
	return part{a, string(binary.LittleEndian.AppendUint64(nil, n))}
}

func moment(a attr, t vfs.Timestamp) part {
	return part{a, string(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, uint64(t.Sec)), t.Nsec))}
}

func (s *Writer) do(op Op, parts ...part) {
	if s.err != nil {
		return
	}
	b := append(s.buf[:0], make([]byte, head)...)
	for _, p := range parts {
		if len(p.value) > math.MaxUint16 {
			s.err = &errs.Error{Op: "writing a stream", Path: short(p.value), Kind: errs.ErrNotSupported, Err: errors.New("too long for a stream")}
			return
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(p.attr))
		b = binary.LittleEndian.AppendUint16(b, uint16(len(p.value)))
		b = append(b, p.value...)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-head))
	binary.LittleEndian.PutUint16(b[4:], uint16(op))
	binary.LittleEndian.PutUint32(b[6:], sum(0, b))
	s.buf = b
	_, s.err = s.w.Write(b)
}

func short(s string) string { return s[:80] + "…" }

// Make writes to the send stream the command that creates an inode of st's type: a symbolic link to target, a
// device with st's number, or an empty file or directory. Content, [Writer.SetXattr], [Writer.Own] and
// [Writer.Times] must follow.
func (s *Writer) Make(path string, st *vfs.Stat, target string) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.do(MkFile, part{aPath, path})
	case unix.S_IFDIR:
		s.do(MkDir, part{aPath, path})
	case unix.S_IFLNK:
		s.do(Symlink, part{aPath, path}, part{aPathLink, target})
	case unix.S_IFIFO:
		s.do(MkFifo, part{aPath, path})
	case unix.S_IFSOCK:
		s.do(MkSock, part{aPath, path})
	default:
		s.do(MkNod, part{aPath, path}, number(aMode, uint64(st.Mode)), number(aRdev, device(st.Rdev)))
	}
}

// device encodes a device number in the form in which the kernel's system calls and send streams hold it.
func device(dev uint64) uint64 {
	major, minor := uint64(unix.Major(dev)), uint64(unix.Minor(dev))
	return minor&0xff | major<<8 | minor&^0xff<<12
}

// Link writes to the send stream the command that makes path another hard link to the inode at the path
// there.
func (s *Writer) Link(path, there string) { s.do(Link, part{aPath, path}, part{aPathLink, there}) }

// Remove writes to the send stream the command that removes the entry at path: with dir set an empty
// directory, otherwise a file.
func (s *Writer) Remove(path string, dir bool) {
	op := Unlink
	if dir {
		op = RmDir
	}
	s.do(op, part{aPath, path})
}

// Write writes to the send stream the command that writes data, at most [Chunk] bytes, to a file at the
// offset at.
func (s *Writer) Write(path string, at int64, data []byte) {
	s.do(Write, part{aPath, path}, number(aOffset, uint64(at)), part{aData, string(data)})
}

// Truncate writes to the send stream the command that sets the length of the file at path to size bytes.
func (s *Writer) Truncate(path string, size int64) {
	s.do(Truncate, part{aPath, path}, number(aSize, uint64(size)))
}

// SetXattr writes to the send stream the command that sets an extended attribute of the inode at path.
func (s *Writer) SetXattr(path, name, value string) {
	s.do(SetXattr, part{aPath, path}, part{aXattrName, name}, part{aXattrData, value})
}

// RemoveXattr writes to the send stream the command that removes an extended attribute of the inode at path.
func (s *Writer) RemoveXattr(path, name string) {
	s.do(RemoveXattr, part{aPath, path}, part{aXattrName, name})
}

// Own writes to the send stream the commands that set the owner of the inode at path to that in st and then
// its mode. The order matters, because a change of the owner clears capabilities and set-id bits.
func (s *Writer) Own(path string, st *vfs.Stat) {
	s.do(Chown, part{aPath, path}, number(aUID, uint64(st.UID)), number(aGID, uint64(st.GID)))
	if !st.IsSymlink() {
		s.do(Chmod, part{aPath, path}, number(aMode, uint64(st.Mode&0o7777)))
	}
}

// Times writes to the send stream the command that sets the access, modification and change times of the
// inode at path to those in st.
func (s *Writer) Times(path string, st *vfs.Stat) {
	s.do(Utimes, part{aPath, path}, moment(aAtime, st.ATime), moment(aMtime, st.MTime), part{aCtime, moment(0, st.CTime).value})
}

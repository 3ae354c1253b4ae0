package diff

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"runtime"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// An Extent is a range of bytes of a file in which two versions of the file may differ. [Extents] yields it.
type Extent struct{ Offset, Length int64 }

// grain is the size in bytes to whose multiples [Extents] rounds the changed ranges of a file, so that there
// are fewer of them.
const grain = 64 << 10

// Extents yields the ranges in which two regular files, open for reading, differ, in order,
// up to the end of new. Ranges are rounded to 64 KiB, except for the last. Beyond the end of
// old, every range of new differs, except for holes. Holes of both files, and holes of new
// beyond old, are not read. Either file may be nil, for an empty one. Extents stops at an
// error of yield, of reading or of the context.
//
// A hole equals written zeros.
func Extents(ctx context.Context, old, new *os.File, yield func(Extent) error) error {
	x := extents{ctx: ctx, yield: yield}
	for side, f := range [2]*os.File{old, new} {
		x.fd[side] = -1
		if f == nil {
			continue
		}
		st, err := vfs.Lstat(int(f.Fd()), "")
		if err != nil {
			return err
		}
		x.fd[side], x.size[side] = int(f.Fd()), st.Size
		x.data[side] = make([]byte, window)
	}
	defer runtime.KeepAlive(old)
	defer runtime.KeepAlive(new)
	return x.walk()
}

// An extents is the state of one call of [Extents], which compares two files.
type extents struct {
	ctx   context.Context
	yield func(Extent) error
	fd    [2]int
	size  [2]int64
	data  [2][]byte
	last  Extent
}

func (x *extents) walk() error {
	end := x.size[newer]
	for at := int64(0); at < end; at += window {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		at = min(x.next(older, at), x.next(newer, at)) / window * window
		if at >= end {
			break
		}
		var piece [2][]byte
		for side := range piece {
			if x.fd[side] < 0 {
				continue
			}
			var err error
			if piece[side], err = readAt(x.fd[side], x.data[side], at); err != nil {
				return err
			}
		}
		if err := x.compare(at, piece[older], piece[newer]); err != nil {
			return err
		}
	}
	return x.flush()
}

// next returns the offset of the next data in the file of one side, old or new, at or after at. It skips
// holes of sparse files.
func (x *extents) next(side int, at int64) int64 {
	if x.fd[side] < 0 || at >= x.size[side] {
		return max(at, x.size[newer])
	}
	return nextData(x.fd[side], at, max(x.size[side], x.size[newer]))
}

// compare yields the ranges in which the bytes a of the old file and b of the new one, both from offset at,
// differ. Beyond the end of the old file, zeros count as equal.
func (x *extents) compare(at int64, a, b []byte) error {
	for from := 0; from < len(b); from += grain {
		to := min(from+grain, len(b))
		was := a[min(from, len(a)):min(to, len(a))]
		is := b[from:to]
		if bytes.Equal(was, is[:len(was)]) && zero(is[len(was):]) {
			continue
		}
		if end := x.last.Offset + x.last.Length; end == at+int64(from) && x.last.Length > 0 && x.last.Length < maxExtent {
			x.last.Length += int64(to - from)
			continue
		}
		if err := x.flush(); err != nil {
			return err
		}
		x.last = Extent{at + int64(from), int64(to - from)}
	}
	return nil
}

// maxExtent is about the maximum number of bytes of one differing range that [Extents] yields; it splits a
// longer one.
const maxExtent = 16 << 20

func (x *extents) flush() error {
	if x.last.Length == 0 {
		return nil
	}
	e := x.last
	x.last = Extent{}
	return x.yield(e)
}

func zero(data []byte) bool { return len(bytes.TrimLeft(data, "\x00")) == 0 }

// Digest returns the SHA-256 over the data of a regular file of this size. Cost: reading its data. A hole is
// not read and equals written zeros.
func Digest(ctx context.Context, fd int, size int64) ([sha256.Size]byte, error) {
	return sum(ctx, fd, size, make([]byte, window))
}

// A digest is the SHA-256 of a file's size and of each 256 KiB (window) that are not all zeros, with their
// offset. A hole is not read and equals written zeros.
type digest = [sha256.Size]byte

func sum(ctx context.Context, fd int, size int64, buf []byte) (d digest, err error) {
	hash := sha256.New()
	var number [8]byte
	put := func(n int64) {
		binary.LittleEndian.PutUint64(number[:], uint64(n))
		hash.Write(number[:]) // a hash takes everything
	}
	for pos := int64(0); pos < size; pos += window {
		if err := ctx.Err(); err != nil {
			return d, err
		}
		if size > window {
			pos = nextData(fd, pos, size) / window * window
		}
		data, err := readAt(fd, buf[:window], pos)
		if err != nil {
			return d, err
		}
		if !zero(data) {
			put(pos)
			hash.Write(data)
		}
	}
	put(size)
	hash.Sum(d[:0])
	return d, nil
}

// nextData returns the offset of the next data of a compared file at or after at (lseek(2), SEEK_DATA), skipping
// holes; without further data that is the end of the file, size. On a filesystem without holes it is at itself.
func nextData(fd int, at, size int64) int64 {
	next, err := unix.Seek(fd, at, unix.SEEK_DATA)
	switch err {
	case nil:
		return next
	case unix.ENXIO:
		return max(at, size)
	}
	return at
}

package sendstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// block is the number of bytes of a file that are copied between two checks whether the context has ended,
// 128 KiB: a copy of a large file ends soon after an interrupt.
const block = 128 << 10

// cannotShare lists the errors that mean that two files, or ranges of them, cannot share disk blocks, so that
// the data must be copied.
var cannotShare = []error{unix.EXDEV, unix.EOPNOTSUPP, unix.EINVAL, unix.ENOTTY, unix.ENOSYS}

// share makes n bytes of dst, at offset to, equal to those of src at offset from, by sharing their disk
// blocks. If the blocks cannot be shared it copies the data. It writes holes and zeros as holes, because a
// short stream may describe very many of them.
func share(ctx context.Context, dst, src *os.File, to, from, n int64) error {
	if n == 0 { // the kernel would take 0 as the rest of the file
		return nil
	}
	err := vfs.CloneRange(dst, src, to, from, n)
	if !slices.ContainsFunc(cannotShare, func(cannot error) bool { return errors.Is(err, cannot) }) {
		return err
	}
	st, err := vfs.Lstat(int(src.Fd()), "")
	if err != nil {
		return err
	}
	size, err := vfs.Lstat(int(dst.Fd()), "")
	if err != nil {
		return err
	}
	switch {
	case from+n > st.Size:
		return bad("a clone of %d bytes at %d is past the end of the file", n, from)
	case st.Dev == size.Dev && st.Ino == size.Ino && from < to+n && to < from+n: // the kernel refuses this too
		return bad("a clone of %d bytes from %d to %d of one file overlaps", n, from, to)
	}
	if to+n > size.Size {
		if err := dst.Truncate(to + n); err != nil {
			return err
		}
	}
	if err := empty(ctx, dst, to, n); err != nil {
		return err
	}
	buf, none := make([]byte, block), make([]byte, block)
	return eachData(ctx, src, from, from+n, buf, func(b []byte, at int64) error {
		if bytes.Equal(b, none[:len(b)]) {
			return nil
		}
		_, err := dst.WriteAt(b, to+at-from)
		return err
	})
}

// empty sets n bytes of a file, at the offset at, to zero, without using disk space if it can: it makes a
// hole, or if the filesystem has none, writes zeros.
func empty(ctx context.Context, f *os.File, at, n int64) error {
	err := vfs.PunchHole(f, at, n)
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	buf, none := make([]byte, block), make([]byte, block)
	return eachData(ctx, f, at, at+n, buf, func(b []byte, at int64) error {
		if bytes.Equal(b, none[:len(b)]) {
			return nil
		}
		_, err := f.WriteAt(none[:len(b)], at)
		return err
	})
}

// eachData reads the data of a file from offset at to end into buf, without the holes, and calls do with each
// piece and its offset in the file.
func eachData(ctx context.Context, f *os.File, at, end int64, buf []byte, do func(b []byte, at int64) error) error {
	for at < end {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		hole := end
		switch {
		case errors.Is(err, unix.ENXIO):
			return nil // a hole up to the end of the file
		case err == nil:
			hole, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		}
		if err != nil { // a filesystem without SEEK_DATA
			data, hole = at, end
		}
		for at = data; at < min(hole, end); {
			if err := ended(ctx); err != nil {
				return err
			}
			n, err := f.ReadAt(buf[:min(int64(len(buf)), hole-at, end-at)], at)
			if n == 0 {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			if err := do(buf[:n], at); err != nil {
				return err
			}
			at += int64(n)
		}
	}
	return nil
}

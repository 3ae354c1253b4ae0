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

// block is how much is copied between two looks at the context.
const block = 128 << 10

// cannotShare are the errors of a filesystem, or of a range, that shares nothing.
var cannotShare = []error{unix.EXDEV, unix.EOPNOTSUPP, unix.EINVAL, unix.ENOTTY, unix.ENOSYS}

// share makes n bytes of dst, at the offset to, those of src at from. Where they cannot be the
// same blocks the data is copied, and what is a hole or zeros becomes a hole: a short
// stream may speak of very many of them.
func share(ctx context.Context, dst, src *os.File, to, from, n int64) error {
	if n == 0 { // which the kernel takes for all of it
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
		return bad("%d bytes at %d of a file that has fewer", n, from)
	case st.Dev == size.Dev && st.Ino == size.Ino && from < to+n && to < from+n: // the kernel shares none either
		return bad("%d bytes at %d and at %d of a file, which overlap", n, from, to)
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

// empty makes n bytes of a file, at an offset, zeros that take no room where that can be.
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

// eachData reads what of a file is no hole, from an offset to another, and calls do with a
// block at a time.
func eachData(ctx context.Context, f *os.File, at, end int64, buf []byte, do func(b []byte, at int64) error) error {
	for at < end {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		hole := end
		switch {
		case errors.Is(err, unix.ENXIO):
			return nil // a hole up to the file's end
		case err == nil:
			hole, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		}
		if err != nil { // a filesystem that knows no holes
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

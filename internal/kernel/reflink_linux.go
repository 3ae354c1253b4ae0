package kernel

import (
	"errors"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// CloneFile makes dst, an empty file open for writing, share all blocks of src:
// constant time, and nothing is copied until one of them is written. Both lie
// on one btrfs, xfs, bcachefs or the like (two subvolumes will do); otherwise
// the error matches EXDEV, EOPNOTSUPP, EINVAL or ENOTTY and dst is as it was.
func CloneFile(dst, src *os.File) error {
	err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
	runtime.KeepAlive(src)
	if err != nil {
		return &os.LinkError{Op: "clone", Old: src.Name(), New: dst.Name(), Err: err}
	}
	return nil
}

// CopyFile makes the content of dst, an empty file open for writing, that of
// src, by CloneFile where it can be, and says whether it was. Otherwise holes
// stay holes, and a filesystem that can copy by itself does so. Neither file
// offset matters; that of src is moved. After an error dst is incomplete.
func CopyFile(dst, src *os.File) (cloned bool, err error) {
	if CloneFile(dst, src) == nil {
		return true, nil
	}
	st, err := Lstat(int(src.Fd()), "")
	if err != nil {
		return false, err
	}
	if st.Size == 0 { // empty, or one of those that /proc makes up
		_, err = io.Copy(dst, io.NewSectionReader(src, 0, 1<<62))
		return false, err
	}
	if err := copyExtents(dst, src, st.Size); err != nil {
		return false, err
	}
	return false, dst.Truncate(st.Size)
}

// copyExtents copies what is not a hole, up to size.
func copyExtents(dst, src *os.File, size int64) error {
	for at := int64(0); at < size; {
		start, err := src.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		end := size
		if err != nil {
			start = at // the filesystem knows no holes
		} else if end, err = src.Seek(start, unix.SEEK_HOLE); errors.Is(err, unix.ENXIO) {
			return nil // src shrank meanwhile
		} else if err != nil {
			return err
		}
		if end = min(end, size); start >= end {
			return nil
		}
		if err := copyRange(dst, src, start, end); err != nil {
			return err
		}
		at = end
	}
	return nil
}

func copyRange(dst, src *os.File, start, end int64) error {
	for from, to := start, start; from < end; {
		n, err := unix.CopyFileRange(int(src.Fd()), &from, int(dst.Fd()), &to, int(min(end-from, 1<<30)), 0)
		switch {
		case err == unix.EINTR:
		case err == unix.EXDEV, err == unix.EINVAL, err == unix.ENOSYS, err == unix.EOPNOTSUPP, err == unix.EPERM:
			w := io.NewOffsetWriter(dst, to)
			_, err := io.Copy(w, io.NewSectionReader(src, from, end-from))
			return err
		case err != nil:
			return &os.LinkError{Op: "copy", Old: src.Name(), New: dst.Name(), Err: err}
		case n == 0:
			return nil // src shrank meanwhile
		}
	}
	return nil
}

package vfs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// CopyFile copies the content of src to dst, an empty file open for writing. It first tries [CloneFile],
// which shares the blocks of src; cloned reports whether that worked. Otherwise the kernel copies the data,
// and holes stay holes. CopyFile moves the file offset of src. After an error dst is incomplete.
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

// copyExtents copies the first size bytes of src to dst and skips the holes, so that dst stays sparse.
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

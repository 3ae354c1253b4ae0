package vfs

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// CloneFile makes dst, an empty file open for writing, share all blocks of src, in constant time. Later
// writes to either file copy the blocks they change. Both files must lie on one filesystem that can share
// blocks, such as btrfs or xfs. Otherwise the error matches EXDEV, EOPNOTSUPP, EINVAL or ENOTTY, and dst is
// unchanged.
func CloneFile(dst, src *os.File) error {
	err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
	runtime.KeepAlive(src)
	if err != nil {
		return &os.LinkError{Op: "clone", Old: src.Name(), New: dst.Name(), Err: err}
	}
	return nil
}

// CloneTo makes a new name a clone of a file, on macOS. On Linux, where [CloneFile] clones into an open file
// instead, it returns ENOTSUP and makes nothing.
func CloneTo(int, string, int) error { return unix.ENOTSUP }

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

package vfs

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// CloneFile makes dst, an empty file open for writing, share all blocks of src on
// Linux. macOS clones to a new name only (see [CloneTo]): ENOTSUP, and dst is as it was.
func CloneFile(dst, src *os.File) error {
	return &os.LinkError{Op: "clone", Old: src.Name(), New: dst.Name(), Err: unix.ENOTSUP}
}

func copyRange(dst, src *os.File, start, end int64) error {
	_, err := io.Copy(io.NewOffsetWriter(dst, start), io.NewSectionReader(src, start, end-start))
	return err
}

// CloneTo makes name in the directory dirfd a file of its own with the content,
// attributes and mode of src, sharing its blocks (fclonefileat(2)): constant time on
// APFS. Errors: EEXIST; EXDEV and ENOTSUP where the two cannot share, and nothing is made.
func CloneTo(dirfd int, name string, src int) error {
	return unix.Fclonefileat(src, dirfd, name, unix.CLONE_NOFOLLOW|unix.CLONE_NOOWNERCOPY)
}

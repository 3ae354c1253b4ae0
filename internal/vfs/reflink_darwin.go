package vfs

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// CloneFile makes dst, an empty file, share all blocks of src, on Linux. macOS clones only to a new name (see
// [CloneTo]), so there CloneFile returns ENOTSUP and does not change dst.
func CloneFile(dst, src *os.File) error {
	return &os.LinkError{Op: "clone", Old: src.Name(), New: dst.Name(), Err: unix.ENOTSUP}
}

func copyRange(dst, src *os.File, start, end int64) error {
	_, err := io.Copy(io.NewOffsetWriter(dst, start), io.NewSectionReader(src, start, end-start))
	return err
}

// CloneTo makes name in the directory dirfd a clone of the open file src, with its content, attributes and
// mode, sharing its blocks (fclonefileat(2)). It takes constant time on APFS. Errors: EEXIST; EXDEV and
// ENOTSUP if these filesystems cannot clone. After an error nothing is made.
func CloneTo(dirfd int, name string, src int) error {
	return unix.Fclonefileat(src, dirfd, name, unix.CLONE_NOFOLLOW|unix.CLONE_NOOWNERCOPY)
}

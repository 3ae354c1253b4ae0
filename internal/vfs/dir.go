package vfs

import (
	"cmp"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// An Entry is one directory entry as the directory itself stores it, without a stat of the file.
type Entry struct {
	// Name holds any bytes but '/' and NUL.
	Name string
	// Ino is the inode number as listed; on overlayfs it may differ from that of stat.
	Ino uint64
	// Type is a unix.DT_* constant; DT_UNKNOWN if the filesystem stores none in directories.
	Type uint8
}

// Entries returns all entries of the open directory dirfd except "." and "..", in the order of the
// filesystem.
func Entries(dirfd int) ([]Entry, error) {
	var list []Entry
	err := EachEntry(dirfd, func(name []byte, ino uint64, typ uint8) error {
		list = append(list, Entry{string(name), ino, typ})
		return nil
	})
	return list, err
}

// SortEntries sorts directory entries in place by the bytes of their names.
func SortEntries(list []Entry) {
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
}

// OpenDir opens the directory name in the open directory dirfd for reading; "" or "." means dirfd itself. It
// does not follow a symbolic link as the last element: the error is then ELOOP or ENOTDIR.
func OpenDir(dirfd int, name string) (*os.File, error) {
	if name == "" {
		name = "."
	}
	return OpenAt(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// OpenAt opens name in dirfd by openat(2) with close-on-exec, and repeats the call after EINTR. flags and
// mode are those of open(2).
func OpenAt(dirfd int, name string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Openat(dirfd, name, flags|unix.O_CLOEXEC, mode)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if err != unix.EINTR {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// OpenBeneath opens path, relative to the directory dirfd, without following any symbolic link and without
// leaving the directory. flags and mode are those of open(2). It uses openat2 (Linux 5.6), and on other
// systems one call for each element. The path may be longer than the kernel takes in one call. Mounts are
// crossed. Errors are *os.PathError: ELOOP for a symbolic link on the way, EXDEV for leaving the directory.
func OpenBeneath(dirfd int, path string, flags int, mode uint32) (*os.File, error) {
	fd, err := OpenBeneathFD(dirfd, path, flags, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// MaxLinks is how many symbolic links the kernel follows in one path before it returns ELOOP, see path_resolution(7).
// A program that follows links itself gives up a path with more too, so that a loop of links ends.
const MaxLinks = 40

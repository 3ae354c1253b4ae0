package vfs

import (
	"encoding/binary"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// EachEntry calls f for every entry of the open directory dirfd except "." and "..", from the first one and
// in the order of the filesystem. typ is a unix.DT_* constant. The name is valid during the call only. An
// error of f ends the listing and is returned unchanged; other errors are *os.PathError.
func EachEntry(dirfd int, f func(name []byte, ino uint64, typ uint8) error) error {
	if _, err := unix.Seek(dirfd, 0, 0); err != nil {
		return &os.PathError{Op: "lseek", Path: "directory", Err: err}
	}
	buf := make([]byte, 32<<10)
	var base uintptr
	for {
		n, err := unix.Getdirentries(dirfd, buf, &base)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "getdirentries", Path: "directory", Err: err}
		}
		if n <= 0 {
			return nil
		}
		if err := eachDirent(buf[:n], f); err != nil {
			return err
		}
	}
}

// eachDirent calls f with the name, inode number and type of each struct dirent in buf (sys/dirent.h, with
// inodes of 64 bits). Such an entry holds inode, offset, its own length, the length of the name, type and
// name.
func eachDirent(buf []byte, f func([]byte, uint64, uint8) error) error {
	const head = 8 + 8 + 2 + 2 + 1
	for len(buf) >= head {
		size, named := int(binary.NativeEndian.Uint16(buf[16:])), int(binary.NativeEndian.Uint16(buf[18:]))
		if size < head+named || size > len(buf) {
			return &os.PathError{Op: "getdirentries", Path: "directory", Err: unix.EINVAL}
		}
		name := buf[head : head+named]
		if s := string(name); s != "." && s != ".." {
			if err := f(name, binary.NativeEndian.Uint64(buf), buf[20]); err != nil {
				return err
			}
		}
		buf = buf[size:]
	}
	return nil
}

// OpenBeneathFD opens path inside the directory dirfd, without following symbolic links, as [OpenBeneath]
// does, and returns a bare descriptor, which is cheaper for thousands of files; the caller closes it. On
// macOS it opens each element of the path in the directory opened before, and so follows a directory that
// another process moves out of dirfd meanwhile, which openat2 on Linux refuses.
func OpenBeneathFD(dirfd int, path string, flags int, mode uint32) (int, error) {
	fail := func(err error) (int, error) { return -1, &os.PathError{Op: "openat", Path: path, Err: err} }
	step := dirfd
	leave := func() {
		if step != dirfd {
			unix.Close(step)
		}
	}
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	switch {
	case strings.HasPrefix(path, "/"):
		return fail(unix.EXDEV)
	case path == "":
		return fail(unix.ENOENT)
	}
	for i, part := range parts {
		how, perm := unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, uint32(0)
		if i == len(parts)-1 {
			how, perm = flags|unix.O_NOFOLLOW, mode
			if flags&unix.O_SYMLINK != 0 {
				how = flags &^ unix.O_NOFOLLOW // the link itself is asked for, and the two do not go together
			}
		}
		if part == ".." {
			leave()
			return fail(unix.EXDEV)
		}
		fd, err := openUninterrupted(step, part, how|unix.O_CLOEXEC, perm)
		leave()
		if err != nil {
			return fail(err)
		}
		step = fd
	}
	return step, nil
}

func openUninterrupted(dirfd int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dirfd, name, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

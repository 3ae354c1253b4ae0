package vfs

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const direntBuffer = 32 << 10

var dirents sync.Pool // of *[direntBuffer]byte

// EachEntry calls f for every entry of the open directory dirfd except "." and "..", from the first one and
// in the order of the filesystem. typ is a unix.DT_* constant. The name is valid during the call only. An
// error of f ends the listing and is returned unchanged; other errors are *os.PathError.
func EachEntry(dirfd int, f func(name []byte, ino uint64, typ uint8) error) error {
	return direntsFrom(dirfd, 0, func(d dirent) (bool, error) {
		if s := string(d.name); s == "." || s == ".." {
			return true, nil
		}
		return true, f(d.name, d.ino, d.typ)
	})
}

// EntriesFrom calls f for the entries of the open directory dirfd, "." and ".." included, starting at place,
// a position of an earlier listing (0 is the beginning), until f returns false for more. next is the position
// after the entry e, from which a later call continues. Filesystems keep positions stable while names are
// added and removed. An error of f is returned unchanged; others are *os.PathError.
func EntriesFrom(dirfd int, place int64, f func(e Entry, next int64) (more bool, err error)) error {
	return direntsFrom(dirfd, place, func(d dirent) (bool, error) {
		return f(Entry{string(d.name), d.ino, d.typ}, d.next)
	})
}

// A dirent is one directory entry decoded from a struct linux_dirent64, as getdents64(2) returns it.
type dirent struct {
	name []byte // valid until the next one
	ino  uint64
	next int64
	typ  uint8
}

func direntsFrom(dirfd int, place int64, f func(dirent) (more bool, err error)) error {
	if _, err := unix.Seek(dirfd, place, 0); err != nil {
		return &os.PathError{Op: "lseek", Path: "directory", Err: err}
	}
	buf, ok := dirents.Get().(*[direntBuffer]byte)
	if !ok {
		buf = new([direntBuffer]byte)
	}
	defer dirents.Put(buf)
	for {
		n, err := unix.Getdents(dirfd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "getdents", Path: "directory", Err: err}
		}
		if n <= 0 {
			return nil
		}
		if more, err := eachDirent(buf[:n], f); !more || err != nil {
			return err
		}
	}
}

// eachDirent calls f for each struct linux_dirent64 in buf, until f returns false for more. Such an entry
// holds inode, offset, its own length, type, and the name with a NUL at its end.
func eachDirent(buf []byte, f func(dirent) (more bool, err error)) (more bool, err error) {
	for len(buf) >= 19 {
		size := int(binary.NativeEndian.Uint16(buf[16:]))
		name := buf[19:size]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		d := dirent{name, binary.NativeEndian.Uint64(buf), int64(binary.NativeEndian.Uint64(buf[8:])), buf[18]}
		if more, err := f(d); !more || err != nil {
			return false, err
		}
		buf = buf[size:]
	}
	return true, nil
}

// OpenBeneathFD opens path inside the directory dirfd, without following symbolic links, as [OpenBeneath]
// does, and returns a bare descriptor, which is cheaper for thousands of files; the caller closes it. On
// macOS it opens each element of the path in the directory opened before, and so follows a directory that
// another process moves out of dirfd meanwhile, which openat2 on Linux refuses.
func OpenBeneathFD(dirfd int, path string, flags int, mode uint32) (int, error) {
	return openResolved(dirfd, path, flags, mode, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
}

// OpenDirOnMount opens the directory path inside dirfd without following symbolic links, as [OpenBeneathFD]
// does, but crosses no mount (EXDEV). It sends no request to a filesystem mounted below.
func OpenDirOnMount(dirfd int, path string) (int, error) {
	const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV
	return openResolved(dirfd, path, unix.O_RDONLY|unix.O_DIRECTORY, 0, resolve)
}

func openResolved(dirfd int, path string, flags int, mode uint32, resolve uint64) (int, error) {
	step := -1 // the directory reached so far, when not dirfd
	defer func() {
		if step >= 0 {
			unix.Close(step)
		}
	}()
	rest := path
	for {
		part, tail := splitLong(rest)
		how := unix.OpenHow{
			Flags:   uint64(flags | unix.O_CLOEXEC),
			Mode:    uint64(mode),
			Resolve: resolve,
		}
		if tail != "" {
			how.Flags, how.Mode = unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0
		}
		fd, err := openat2(dirfd, part, &how)
		if err != nil {
			return -1, &os.PathError{Op: "openat2", Path: path, Err: err}
		}
		if tail == "" {
			return fd, nil
		}
		if step >= 0 {
			unix.Close(step)
		}
		step, dirfd, rest = fd, fd, tail
	}
}

// openat2 calls openat2(2). It repeats the call after EINTR, and after EAGAIN, which the kernel returns when
// another process renames a directory of the path meanwhile.
func openat2(dirfd int, path string, how *unix.OpenHow) (int, error) {
	for {
		fd, err := unix.Openat2(dirfd, path, how)
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
}

// splitLong splits a path that is too long for one system call into a leading part that fits and the rest.
func splitLong(path string) (part, tail string) {
	if len(path) < unix.PathMax {
		return path, ""
	}
	i := strings.LastIndexByte(path[:unix.PathMax-1], '/')
	if i <= 0 {
		return path, ""
	}
	return path[:i], strings.TrimLeft(path[i:], "/")
}

package vfs

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// ReadFile reads a small file in four system calls. os.ReadFile needs five more, because it registers the
// file with the Go runtime's poller. Errors: *os.PathError.
func ReadFile(path string) ([]byte, error) {
	f, err := OpenAt(unix.AT_FDCWD, path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := ReadFD(int(f.Fd()), math.MaxInt64)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return data, nil
}

// ReadFD returns the first most bytes of the open file fd, or all of a shorter one, wherever its offset is. The
// caller names the file in the error, which is a unix.Errno. Cost: two system calls for less than 4 KiB.
func ReadFD(fd int, most int64) ([]byte, error) {
	data := make([]byte, 0, min(most, 4096))
	for int64(len(data)) < most {
		if len(data) == cap(data) {
			data = append(make([]byte, 0, min(most, 4*int64(cap(data)))), data...)
		}
		n, err := pread(fd, data[len(data):cap(data)], int64(len(data)))
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		data = data[:len(data)+n]
	}
	return data, nil
}

// pread is pread(2), again after a signal.
func pread(fd int, data []byte, offset int64) (int, error) {
	n, err := unix.Pread(fd, data, offset)
	for err == unix.EINTR {
		n, err = unix.Pread(fd, data, offset)
	}
	return n, err
}

// ReadSmallAt reads a small regular file in the directory dirfd, with the attributes that the file had before it
// was read. flags are added to those of openat(2). A file that grows meanwhile is read again. Errors:
// *os.PathError. Cost: four system calls.
func ReadSmallAt(dirfd int, path string, flags int) ([]byte, Stat, error) {
	fd, err := unix.Openat(dirfd, path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	for err == unix.EINTR {
		fd, err = unix.Openat(dirfd, path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	}
	if err != nil {
		return nil, Stat{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for {
		st, err := Lstat(fd, "")
		if err != nil {
			return nil, st, err
		}
		data := make([]byte, st.Size+1)
		n, err := pread(fd, data, 0) // one call, since a regular file ends where a read is short
		if err != nil {
			return nil, st, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n < len(data) { // else the file has grown meanwhile
			return data[:n], st, nil
		}
	}
}

// WriteFile writes text to an existing file in a single write call, which the files of /proc, /sys and
// cgroups require. Errors: *os.PathError.
func WriteFile(path, text string) error {
	f, err := OpenAt(unix.AT_FDCWD, path, unix.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = unix.Write(int(f.Fd()), []byte(text)); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

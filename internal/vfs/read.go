package vfs

import (
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
	data := make([]byte, 0, 4096)
	for {
		if len(data) == cap(data) {
			data = append(data, make([]byte, cap(data))...)[:len(data)]
		}
		n, err := unix.Read(int(f.Fd()), data[len(data):cap(data)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return data, nil
		default:
			data = data[:len(data)+n]
		}
	}
}

// ReadRegular reads a small regular file in the directory dirfd, with the attributes that the file had before it
// was read. flags are added to those of openat(2). A file that grows meanwhile is read again. Errors:
// *os.PathError. Cost: four system calls.
func ReadRegular(dirfd int, path string, flags int) ([]byte, Stat, error) {
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
		n, err := unix.Pread(fd, data, 0)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, st, &os.PathError{Op: "read", Path: path, Err: err}
		case n < len(data): // else the file has grown meanwhile
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

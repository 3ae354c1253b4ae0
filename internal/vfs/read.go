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

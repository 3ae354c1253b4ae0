package stdio

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// WaitReadable waits until one of files can be read or is at its end, and returns its index.
// It returns -1 after timeout; a negative timeout waits without limit.
func WaitReadable(timeout time.Duration, files ...*os.File) (int, error) {
	fds := make([]unix.PollFd, len(files))
	for i, f := range files {
		fds[i] = unix.PollFd{Fd: int32(f.Fd()), Events: unix.POLLIN}
	}
	ms := -1
	if timeout >= 0 {
		ms = int(timeout.Milliseconds())
	}
	for {
		n, err := unix.Poll(fds, ms)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return -1, err
		}
		for i := range fds {
			if fds[i].Revents != 0 {
				return i, nil
			}
		}
	}
}

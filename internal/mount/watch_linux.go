package mount

import (
	"os"

	"golang.org/x/sys/unix"
)

// A Watch detects mounts and unmounts in this thread's mount namespace. A caller whose operation failed
// because of the mounts asks it whether they have changed, so that a second attempt is worthwhile.
type Watch struct{ file *os.File }

// NewWatch starts to watch for mounts and unmounts in this thread's mount namespace; the caller closes the
// Watch. Cost: 10 µs. Errors are *os.PathError.
func NewWatch() (*Watch, error) {
	path := ownProc("mounts")
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &Watch{os.NewFile(uintptr(fd), "mounts")}, nil
}

// Changed reports whether any mount was added, removed or moved since NewWatch or the last
// call (priority events of proc_pid_mounts(5)). After an error of the kernel it returns true.
func (w *Watch) Changed() bool {
	fds := []unix.PollFd{{Fd: int32(w.file.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return err != nil || n > 0
}

// Close ends the watch for mounts and unmounts.
func (w *Watch) Close() { w.file.Close() }

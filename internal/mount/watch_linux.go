package mount

import (
	"os"

	"golang.org/x/sys/unix"
)

// A Watch tells whether filesystems were mounted or unmounted in this
// thread's mount namespace.
type Watch struct{ file *os.File }

// NewWatch begins to watch. Cost: 10 µs. Errors are *os.PathError.
func NewWatch() (*Watch, error) {
	fd, err := unix.Open("/proc/thread-self/mounts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/proc/thread-self/mounts", Err: err}
	}
	return &Watch{os.NewFile(uintptr(fd), "mounts")}, nil
}

// Changed reports whether any mount came, went or moved since WatchMounts or the
// last call (proc_pid_mounts(5): the file is marked as having a priority event).
// What cannot be asked counts as changed.
func (w *Watch) Changed() bool {
	fds := []unix.PollFd{{Fd: int32(w.file.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return err != nil || n > 0
}

// Close ends it.
func (w *Watch) Close() { w.file.Close() }

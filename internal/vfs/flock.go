package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// Flock is flock(2) on an open file, again where a signal came in between.
// Errors: *os.PathError; EWOULDBLOCK where LOCK_NB is in how and another has it.
func Flock(f *os.File, how int) error {
	if err := FlockFD(int(f.Fd()), how); err != nil {
		return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return nil
}

// FlockFD is [Flock] of a descriptor, with the bare error.
func FlockFD(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); err != unix.EINTR {
			return err
		}
	}
}

// Unlock releases a lock of [Flock] at once, and closes its file. Closing alone would leave
// the lock for an instant to a child process that another thread is starting, which still has
// copies of all open files.
func Unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // closing does the same, if later
	f.Close()
}

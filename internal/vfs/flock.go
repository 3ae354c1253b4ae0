package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// Flock calls flock(2) on an open file, and repeats it after a signal. Errors: *os.PathError;
// EWOULDBLOCK if how has LOCK_NB and another open file has the lock.
func Flock(f *os.File, how int) error {
	if err := FlockFD(int(f.Fd()), how); err != nil {
		return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return nil
}

// FlockFD locks the open file of a descriptor by flock(2), as [Flock] does. It returns the bare
// error number.
func FlockFD(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); err != unix.EINTR {
			return err
		}
	}
}

// Unlock releases a lock of [Flock] at once, and closes its file. Closing alone could leave
// the lock for an instant to a child process that another thread is starting, which has copies
// of all open files until its exec.
func Unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // closing does the same, if later
	f.Close()
}

package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// Flock locks an open file by flock(2), and repeats the call after a signal. how is unix.LOCK_SH or LOCK_EX,
// with LOCK_NB to fail instead of waiting. Errors: *os.PathError; EWOULDBLOCK if how has LOCK_NB and another
// open file has the lock.
func Flock(f *os.File, how int) error {
	if err := FlockFD(int(f.Fd()), how); err != nil {
		return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return nil
}

// FlockFD locks the open file of a bare descriptor by flock(2), as [Flock] does, and returns the bare error
// number.
func FlockFD(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); err != unix.EINTR {
			return err
		}
	}
}

// Unlock releases the lock that [Flock] took on f, and closes f. Closing f alone could leave the lock for an
// instant: a child process that another thread is starting has copies of all open files until its exec.
func Unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // closing does the same, if later
	f.Close()
}

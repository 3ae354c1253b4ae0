package stdio

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
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

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// InBackground reports whether tty is the controlling terminal of this process and another process group is
// in its foreground, so that a read would stop this process.
func InBackground(tty *os.File) bool {
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// SignalForeground sends a signal to the process group in the foreground of a terminal. pty is the terminal's
// outer end. If no group is in the foreground, it does nothing.
func SignalForeground(pty *os.File, sig unix.Signal) error {
	group, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPGRP)
	if err != nil || group <= 1 {
		return err
	}
	return unix.Kill(-group, sig)
}

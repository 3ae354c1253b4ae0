//go:build !linux

package relay

import (
	"os"

	"golang.org/x/sys/unix"
)

// newPipe returns the ends of a pipe in blocking mode.
func newPipe() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err == nil {
		r.Fd()
		w.Fd()
	}
	return r, w, err
}

// splice and tee are Linux's.
func splice(*os.File, *os.File, int) (int, error) { return 0, unix.EINVAL }

func tee(from, to *os.File, n int) (int, error) {
	buf := make([]byte, n)
	n, err := unix.Read(int(from.Fd()), buf)
	if n <= 0 {
		return 0, err
	}
	return n, writeAll(to, buf[:n])
}

// setSize does nothing: the size is the kernel's.
func setSize(*os.File, int) error { return nil }

// takeBack returns an error: a pipe's end cannot be opened again.
func takeBack(*os.File) (int, error) { return 0, unix.ENOSYS }

// reopen returns nil: the terminal is read as it is.
func reopen(*os.File) *os.File { return nil }

func isStream(*os.File) bool { return true }

// lineMode returns true: the mode of a terminal is not read here.
func lineMode(*os.File) bool { return true }

//go:build !linux

package relay

import (
	"os"

	"golang.org/x/sys/unix"
)

// newPipe returns the reading and the writing end of a new pipe in blocking mode, through which a command's
// input or output passes.
func newPipe() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err == nil {
		r.Fd()
		w.Fd()
	}
	return r, w, err
}

// splice moves bytes between a pipe and a file without copying, on Linux. Here it always returns EINVAL, and
// the caller reads and writes them.
func splice(*os.File, *os.File, int) (int, error) { return 0, unix.EINVAL }

func tee(from, to *os.File, n int) (int, error) {
	buf := make([]byte, n)
	n, err := unix.Read(int(from.Fd()), buf)
	if n <= 0 {
		return 0, err
	}
	return n, writeAll(to, buf[:n])
}

// setSize does nothing, because only Linux lets a program set the size of a pipe.
func setSize(*os.File, int) error { return nil }

// takeBack empties a pipe through its writing end, on Linux. Here it always returns an error, because a
// pipe's end cannot be opened again.
func takeBack(*os.File) (int, error) { return 0, unix.ENOSYS }

// reopen opens the caller's terminal a second time, on Linux. Here it returns nil, and the caller reads the
// terminal through the descriptor that it has.
func reopen(*os.File) *os.File { return nil }

func isStream(*os.File) bool { return true }

// lineMode reports whether a terminal delivers whole lines, on Linux. Here it always returns true, without
// reading the terminal's mode.
func lineMode(*os.File) bool { return true }

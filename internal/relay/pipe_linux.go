package relay

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// newPipe returns the reading and the writing end of a new pipe, through which a command's input or output
// passes. It is in blocking mode, and Go's runtime does not poll it.
func newPipe() (r, w *os.File, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	return os.NewFile(uintptr(ends[0]), "pipe"), os.NewFile(uintptr(ends[1]), "pipe"), nil
}

// splice moves up to n bytes of a command's input or output from the pipe from to another file, without
// copying them through this process (splice(2)). It does not wait for bytes, which a process of the sandbox may have
// taken out of the pipe: without them the error is EAGAIN.
func splice(from, to *os.File, n int) (int, error) {
	moved, err := unix.Splice(int(from.Fd()), nil, int(to.Fd()), nil, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	return int(max(moved, 0)), err
}

// tee duplicates up to n bytes of a command's input from one pipe to another, and leaves them in the first
// (tee(2)).
func tee(from, to *os.File, n int) (int, error) {
	copied, err := unix.Tee(int(from.Fd()), int(to.Fd()), n, unix.SPLICE_F_NONBLOCK)
	return int(max(copied, 0)), err
}

// setSize sets the size of the pipe's buffer to n bytes, which bounds how much input waits for a command.
func setSize(pipe *os.File, n int) error {
	_, err := unix.FcntlInt(pipe.Fd(), unix.F_SETPIPE_SZ, n)
	return err
}

// takeBack empties a pipe of which this process has only the writing end, and returns how many bytes it held:
// those that a command has not read.
func takeBack(pipe *os.File) (int, error) {
	end, err := unix.Open(pathOf(pipe), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(end)
	taken := 0
	for buf := make([]byte, 16*slot); ; {
		n, err := unix.Read(end, buf)
		if n > 0 {
			taken += n
		} else if err != unix.EINTR {
			return taken, nil
		}
	}
}

// reopen opens the caller's terminal a second time, for reading a command's input in non-blocking mode. It
// returns nil if this user may not.
func reopen(tty *os.File) *os.File {
	fd, err := unix.Open(pathOf(tty), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), tty.Name())
}

func pathOf(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

func isStream(f *os.File) bool {
	kind, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
	listens, lerr := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && kind == unix.SOCK_STREAM && lerr == nil && listens == 0
}

// lineMode reports whether a terminal delivers input in whole lines, and not as single keys, which a program
// such as a pager has requested for itself.
func lineMode(tty *os.File) bool {
	mode, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	return err == nil && mode.Lflag&unix.ICANON != 0
}

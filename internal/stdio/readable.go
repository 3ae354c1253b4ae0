package stdio

import (
	"os"

	"golang.org/x/sys/unix"
)

// Readable reports whether a read of f would return at once, with data or at the end. It returns false for a
// file that cannot be polled.
func Readable(f *os.File) bool {
	readable := false
	_ = Control(f, func(fd int) error {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		readable = err == nil && n > 0
		return err
	}) // a file that is closed has nothing
	return readable
}

// Control calls f with the descriptor of file. Meanwhile the file stays open, and in its blocking or
// non-blocking mode, which [os.File.Fd] would change.
func Control(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

package isolate

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// SetSize sets the size, in characters, of the terminal of which the file is either end.
func SetSize(terminal *os.File, size Size) error {
	c, err := terminal.SyscallConn()
	if err != nil {
		return launch.HostError("resizing the terminal", err)
	}
	ws := unix.Winsize{Row: size.Rows, Col: size.Cols}
	var failed error
	if err := c.Control(func(fd uintptr) { failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &ws) }); err != nil {
		failed = err
	}
	if failed != nil {
		return launch.HostError("resizing the terminal", failed)
	}
	return nil
}

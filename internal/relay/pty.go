package relay

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/internal/stdio"
)

// lastWords is how long a pseudoterminal must be silent after the command's end before its output
// counts as complete. A background process may hold it open and write on, so that the output also
// ends after mostWords bytes, which is more than the kernel holds, or after mostWait of waiting.
const (
	lastWords = 20 * time.Millisecond
	mostWords = 256 << 10
	mostWait  = 200 * time.Millisecond
)

// CopyTerminal copies output from pty, the outer end of a pseudoterminal, to the screen, until
// every inner end is closed, or until stop can be read and no output of before is left.
func CopyTerminal(screen *Screen, pty, stop *os.File) {
	buf := make([]byte, 32<<10)
	words, waited := mostWords, time.Duration(0)
	for ended := false; words > 0 && waited < mostWait; {
		if ended {
			began := time.Now()
			if ready, err := stdio.WaitReadable(lastWords, pty); ready < 0 || err != nil {
				return
			}
			waited += time.Since(began)
		} else if ready, err := stdio.WaitReadable(-1, pty, stop); err != nil {
			return
		} else if ready == 1 {
			ended = true
			continue
		}
		n, err := syscall.Read(int(pty.Fd()), buf)
		if n > 0 {
			screen.Write(buf[:n]) //nolint:errcheck // a screen that has gone must not stop the command
		}
		if err != nil && !errors.Is(err, syscall.EINTR) || n == 0 && err == nil {
			return // EIO is how a terminal says that it was closed
		}
		if ended {
			words -= n
		}
	}
}

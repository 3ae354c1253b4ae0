package relay

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/internal/stdio"
)

// lastWords is how long a pseudoterminal must be silent after the command's end before its output counts as
// complete. A background process may hold it open and continue to write. So the output also ends after
// mostWords bytes, which is more than the kernel buffers, or after mostWait of waiting.
const (
	lastWords = 20 * time.Millisecond
	mostWords = 256 << 10
	mostWait  = 200 * time.Millisecond
)

// CopyTerminal copies the output of the programs in a pseudoterminal to the caller's terminal. pty is the
// outer end, from which this process reads. It returns when every inner end is closed, or when stop becomes
// readable, which means that the command has ended, and no earlier output is left.
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

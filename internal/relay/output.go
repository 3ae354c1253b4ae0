package relay

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/stdio"
)

// An output copies the data that a command writes to a pipe on to a stream of the caller.
type output struct {
	from, to *os.File
	kind     kind
	screen   *Screen // for a terminal
	buf      []byte
	failed   error // of the last write, once done is closed
	done     chan struct{}
	written  atomic.Int64 // bytes written to the caller's stream
	// ended is nil, or closed at the end of the copying if that goes on after the command's end, for processes
	// that it has left. done is closed when the command's own output is copied. The output then owns to.
	ended chan struct{}
}

// copy copies the command's output until all processes have closed the pipe. After the command's end, when
// stop becomes readable, it copies only the bytes that the pipe holds at that time. If nobody reads the
// caller's stream any more, copy closes the pipe, so that the command gets SIGPIPE at its next write.
func (o *output) copy(stop *os.File) {
	o.failed = o.copyUntil(stop)
	goOn := o.ended != nil && o.failed == nil
	if !goOn {
		o.from.Close()
	}
	close(o.done)
	if goOn {
		_ = o.copyUntil(nil) // if it fails, the processes that the command left get SIGPIPE
		o.from.Close()
	}
	if o.ended != nil {
		o.to.Close()
		close(o.ended)
	}
}

// copyUntil copies the command's output until all processes have closed the pipe or, after stop has become
// readable, the bytes are copied that the pipe held then, or the pipe is empty, because a process of the sandbox has
// read from it. It returns the error of writing them to the caller's stream. A nil stop never becomes readable.
func (o *output) copyUntil(stop *os.File) error {
	const bulk = 1 << 20
	for left := -1; left != 0; {
		waits := []unix.PollFd{on(o.from, unix.POLLIN), {Fd: -1}, on(o.to, 0)}
		if left < 0 && stop != nil {
			waits[1] = on(stop, unix.POLLIN)
		}
		if o.kind != pipe { // others have no end that poll reports
			waits[2].Fd = -1
		}
		timeout := -1
		if left > 0 {
			timeout = 0
		}
		if wait(timeout, waits) != nil || waits[2].Revents != 0 {
			return nil //nolint:nilerr // the caller's reader has gone, as without a relay
		}
		if waits[1].Revents != 0 {
			n, err := stdio.Unread(o.from)
			if left = n; err != nil {
				return nil //nolint:nilerr // the pipe cannot be read: nothing was lost on the way to the caller
			}
			continue
		}
		if waits[0].Revents == 0 {
			return nil
		}
		most := bulk
		if left > 0 {
			most = min(bulk, left)
		}
		n, err := o.move(most)
		if n == 0 && err == nil || err != nil && !again(err) {
			return err
		}
		o.written.Add(int64(n))
		if left > 0 {
			left = max(left-n, 0)
		}
	}
	return nil
}

// move copies at least one byte of the command's output to the caller, and at most most bytes. It returns 0
// and no error at the end of the output, and EAGAIN if it has not moved any byte for another reason. It does not splice
// into regular files: splice(2) moves a file's position without a lock, so that what several commands write to one
// open file would overwrite each other.
func (o *output) move(most int) (int, error) {
	if o.screen == nil && o.kind != regular {
		n, err := splice(o.from, o.to, most)
		if again(err) {
			return 0, o.room(err)
		}
		if err != unix.EINVAL && err != unix.ENOSYS {
			return n, err
		}
	}
	if o.buf == nil {
		o.buf = make([]byte, 64<<10)
	}
	n, err := unix.Read(int(o.from.Fd()), o.buf[:min(most, len(o.buf))])
	if n <= 0 {
		return 0, err
	}
	if o.screen != nil {
		o.screen.Write(o.buf[:n]) //nolint:errcheck // a terminal that has gone must not stop the command
		return n, nil
	}
	return n, writeAll(o.to, o.buf[:n])
}

// room handles the error of writing a command's output to the caller's stream. If err says that the stream is
// full (EAGAIN), room first waits until there is space. It returns err, or the error of waiting.
func (o *output) room(err error) error {
	if err == unix.EAGAIN {
		if werr := wait(-1, []unix.PollFd{on(o.to, unix.POLLOUT)}); werr != nil {
			return werr
		}
	}
	return err
}

// writeAll writes all of p, a command's output, to the caller's stream f, and waits for space if f is in
// non-blocking mode.
func writeAll(f *os.File, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(int(f.Fd()), p)
		if err == unix.EAGAIN {
			err = wait(-1, []unix.PollFd{on(f, unix.POLLOUT)})
		}
		if err != nil && err != unix.EINTR {
			return err
		}
		p = p[max(n, 0):]
	}
	return nil
}

func again(err error) bool { return err == unix.EAGAIN || err == unix.EINTR }

func on(f *os.File, events int16) unix.PollFd {
	return unix.PollFd{Fd: int32(f.Fd()), Events: events}
}

// wait waits until one of the files is ready for reading or writing, as poll(2) does, or timeout milliseconds
// have passed; -1 waits without limit.
func wait(timeout int, files []unix.PollFd) error {
	for {
		if _, err := unix.Poll(files, timeout); err != unix.EINTR {
			return err
		}
	}
}

package relay

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/stdio"
)

// A source is the caller's standard input, from which the relay copies what a command reads: a pipe, a socket
// or a terminal.
type source interface {
	// offer copies bytes that wait in the source to the empty pipe to, from which the command reads, without
	// removing them from the source if its type allows that. It returns how many; at the source's end 0 and
	// no error.
	offer(to *os.File) (int, error)
	// consume removes the first n of the bytes that were offered to the command from the caller's standard
	// input, because the command has read them.
	consume(n int)
}

// An input copies the caller's standard input to a pipe from which a command reads. It copies a little at a
// time and only while the pipe is empty, so that bytes that the command does not read stay with the caller.
type input struct {
	from    *os.File
	source  source
	tty     *ttySource // source, if that is a terminal
	to      *os.File   // the relay's end of the pipe
	offered int        // bytes offered and not yet consumed
	done    chan struct{}
}

func newInput(k kind, from, to *os.File) *input {
	in := &input{from: from, to: to, done: make(chan struct{})}
	unix.SetNonblock(int(to.Fd()), true) //nolint:errcheck // otherwise a write waits for the command
	switch k {
	case pipe:
		in.source = &pipeSource{from: from, size: 16 * slot}
	case socket:
		in.source = &socketSource{from: from, buf: make([]byte, 16*slot)}
	default:
		in.tty = newTTYSource(from)
		in.source = in.tty
	}
	return in
}

// copy copies the caller's input to the command until the input ends, the command closes the pipe, or stop
// becomes readable, which means that the command has ended.
func (in *input) copy(stop *os.File) {
	defer close(in.done)
	defer in.to.Close()
	if in.tty != nil {
		defer in.tty.close()
	}
	for in.await(stop) {
		n, err := in.source.offer(in.to)
		if again(err) {
			continue // another process has read it
		}
		if err != nil || n == 0 {
			return
		}
		in.offered = n
		if !in.taken(stop) {
			in.settle()
			return
		}
		in.source.consume(n)
		in.offered = 0
	}
}

// await waits until the caller's input has bytes for the command. It returns false if nothing more is to be
// copied, because the command has closed the pipe or ended (stop becomes readable).
func (in *input) await(stop *os.File) bool {
	for {
		waits := []unix.PollFd{on(in.from, unix.POLLIN), on(in.to, 0), on(stop, unix.POLLIN)}
		if wait(-1, waits) != nil || waits[1].Revents|waits[2].Revents != 0 {
			return false
		}
		if in.tty == nil {
			return true
		}
		pause := in.tty.pause()
		waits[0].Fd = -1
		if wait(int(pause.Milliseconds()), waits) != nil || waits[1].Revents|waits[2].Revents != 0 {
			return false
		}
		if pause == grace && in.tty.pause() == grace && stdio.Readable(in.from) {
			return true
		}
	}
}

// The pauses between two checks whether a command has read the rest of a large input that snapfs has offered
// it through a pipe. First come spins pauses of spin, because a command that reads a lot takes the rest at
// once. Then the pauses double, from 1 ms up to idle.
const (
	spins = 20
	spin  = 20 * time.Microsecond
	idle  = 100 * time.Millisecond
)

// taken waits until the command has read all bytes that were written to its pipe. It returns false if the
// command has ended (stop becomes readable) or has closed the pipe.
func (in *input) taken(stop *os.File) bool {
	for round, ms := 0, 1; ; round++ {
		// A pipe that is full to its last page has room once that page is read.
		waits := []unix.PollFd{on(in.to, unix.POLLOUT), on(stop, unix.POLLIN)}
		if wait(-1, waits) != nil || waits[0].Revents&unix.POLLERR != 0 {
			return false
		}
		left, err := stdio.Unread(in.to)
		if err == nil && left == 0 {
			return true
		}
		if err != nil || waits[1].Revents != 0 {
			return false
		}
		if waits[0].Revents == 0 {
			continue
		}
		if round < spins {
			time.Sleep(spin)
			continue
		}
		if wait(ms, waits[1:]) != nil || waits[1].Revents != 0 {
			return false
		}
		ms = min(2*ms, int(idle.Milliseconds()))
	}
}

// settle is called when the command has ended. It takes the bytes that the command has not read back out of
// the command's pipe. It then removes from the caller's input only those that the command has read.
func (in *input) settle() {
	if left, err := takeBack(in.to); err == nil {
		in.source.consume(max(in.offered-left, 0))
	}
}

// slot is the size in bytes of the smallest buffer that a pipe can have, one page. The relay passes a command
// one page of the caller's input at a time, or sixteen if more than one waits.
const slot = 4096

// A ttySource reads the caller's terminal for a command. Bytes read from a terminal cannot be put back, so it
// reads only a line that no other program takes within a short time.
type ttySource struct {
	from *os.File
	// own is from, opened again in non-blocking mode, or nil where that is not permitted.
	own *os.File
	// raw is set if the terminal delivered single keys before the command began.
	raw bool
	buf [slot]byte
}

func newTTYSource(from *os.File) *ttySource {
	return &ttySource{from: from, own: reopen(from), raw: !lineMode(from)}
}

// grace is how long terminal input stays unread, so that another reader of the terminal can take it first,
// such as a pager that shows the command's output. background is the time between two checks whether snapfs
// may read the terminal again, while it may not.
const (
	grace      = 30 * time.Millisecond
	background = 100 * time.Millisecond
)

// pause returns how long to wait before reading the terminal: grace if its input may be for the command. It
// returns background while the input is for others, because snapfs is not in the foreground, or another
// program has set a mode for single keys.
func (s *ttySource) pause() time.Duration {
	if stdio.InBackground(s.from) || !s.raw && !lineMode(s.from) {
		return background
	}
	return grace
}

func (s *ttySource) offer(to *os.File) (int, error) {
	from := s.own
	if from == nil {
		from = s.from
	}
	n, err := unix.Read(int(from.Fd()), s.buf[:])
	if n <= 0 {
		return 0, err
	}
	return n, writeAll(to, s.buf[:n])
}

func (s *ttySource) consume(int) {}

func (s *ttySource) close() {
	if s.own != nil {
		s.own.Close()
	}
}

// A socketSource reads a command's input from a socket. It looks at bytes without removing them (MSG_PEEK),
// and removes those that the command has read.
type socketSource struct {
	from *os.File
	buf  []byte
}

func (s *socketSource) offer(to *os.File) (int, error) {
	n, _, err := unix.Recvfrom(int(s.from.Fd()), s.buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if n <= 0 {
		return 0, err
	}
	return unix.Write(int(to.Fd()), s.buf[:n])
}

func (s *socketSource) consume(n int) {
	for n > 0 {
		m, _, err := unix.Recvfrom(int(s.from.Fd()), s.buf[:min(n, len(s.buf))], unix.MSG_DONTWAIT)
		if err == unix.EINTR {
			continue
		}
		if err != nil || m == 0 {
			return
		}
		n -= m
	}
}

// A pipeSource reads a command's input from a pipe. It duplicates bytes without removing them (tee(2)), and
// removes those that the command has read.
type pipeSource struct {
	from *os.File
	size int // of the pipe to the command
	buf  []byte
}

// offer copies bytes that wait in the caller's pipe into the command's pipe with tee(2), which leaves them in
// the caller's: up to one page, or up to 16 if more than one page waits. [pipeSource.consume] removes from
// the caller's pipe those that the command has read. offer returns the number of bytes.
func (s *pipeSource) offer(to *os.File) (int, error) {
	size := slot
	if waiting, err := stdio.Unread(s.from); err == nil && waiting > slot {
		size = 16 * slot
	}
	if size != s.size && setSize(to, size) == nil {
		s.size = size
	}
	return tee(s.from, to, size)
}

func (s *pipeSource) consume(n int) {
	if s.buf == nil {
		s.buf = make([]byte, 16*slot)
	}
	for n > 0 && stdio.Readable(s.from) {
		m, err := unix.Read(int(s.from.Fd()), s.buf[:min(n, len(s.buf))])
		if err != nil && !again(err) || err == nil && m == 0 {
			return
		}
		n -= max(m, 0)
	}
}

package e2b

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/serve/e2b/envd"
)

// Bounds of a command's output on its way to a client of E2B: the size of a piece, how many wait, and times.
const (
	pieceSize = 32 << 10
	// maxQueued is how many pieces of output wait for a client that reads slowly. Then the command waits for
	// the client, as it does for any full pipe, but at most for slowClient. After that the client gets no
	// more.
	maxQueued  = 64
	slowClient = 30 * time.Second
	// lastOutput is how long the report of a command's end is delayed for output of processes that the
	// command has left behind.
	lastOutput = 300 * time.Millisecond
	// maxPipe is the largest number of bytes that a pipe holds (pipe(7)): how much output a command can leave
	// there at its end.
	maxPipe = 1 << 20
)

// A command is a program that an E2B client started in a sandbox and that runs or has just ended. Clients can
// connect to it and leave while it runs; each gets its output through a reader.
type command struct {
	pid     uint32
	tag     *string
	config  *envd.ProcessConfig
	process supervise.Client
	stdin   *os.File // nil without one, or for a terminal
	outputs []*os.File

	inputMu sync.Mutex // held while input is written

	exited atomic.Bool // the command has ended, and perhaps not its output

	mu      sync.Mutex
	readers map[*reader]bool
	cancel  func()             // of the deadline
	ended   *envd.ProcessEvent // the event of its end
	done    chan struct{}      // closed after ended is set
}

// A reader is a client that reads the output of a running command: the channel through which it gets events,
// and whether it has left or was dropped.
type reader struct {
	events  chan *envd.ProcessEvent // never closed: several streams send to it
	gone    chan struct{}           // closed when the client has left
	once    sync.Once
	slow    bool          // the client was dropped; the command's mu guards it
	dropped chan struct{} // closed when slow is set
}

func (r *reader) leave() { r.once.Do(func() { close(r.gone) }) }

// A streams holds the pipes of a command that a client runs in a sandbox: the ends that the command gets, and
// the ends that this server reads and writes.
type streams struct {
	given  []*os.File
	in     *os.File
	out    *os.File
	err    *os.File
	failed error
}

func (s *streams) pipe() (r, w *os.File) {
	if s.failed != nil {
		return nil, nil
	}
	r, w, s.failed = os.Pipe()
	return r, w
}

// open makes the pipes for the command c and sets them as its standard streams; a command with a terminal
// needs none. input says whether it gets a standard input. After an error the caller closes s.
func (s *streams) open(c *engine.Command, input bool) error {
	if c.TTY != nil {
		return nil // all three are the terminal
	}
	if input {
		c.Stdin, s.in = s.pipe()
	}
	s.out, c.Stdout = s.pipe()
	s.err, c.Stderr = s.pipe()
	s.given = []*os.File{c.Stdin, c.Stdout, c.Stderr}
	return s.failed
}

// handOver closes this process's copies of the command's ends of the pipes, once the command has started.
// With them open, the output would never end.
func (s *streams) handOver() {
	for _, f := range s.given {
		f.Close() // nil is no file
	}
}

func (s *streams) close() {
	s.handOver()
	for _, f := range []*os.File{s.in, s.out, s.err} {
		f.Close()
	}
}

// start starts the command c in the sandbox b. The client first reads its output from the beginning; other
// clients may join later. input says whether the command gets a standard input.
func start(ctx context.Context, b *opened, c engine.Command, input bool, o supervise.ExecOptions, first *reader) (*command, error) {
	var s streams
	if err := s.open(&c, input); err != nil {
		s.close()
		return nil, err
	}
	p, err := b.e.Supervise.ExecWith(ctx, b.Name, c, o)
	if err != nil {
		s.close()
		return nil, err
	}
	s.handOver()
	x := &command{
		process: p, stdin: s.in, cancel: func() {}, readers: map[*reader]bool{first: true}, done: make(chan struct{}),
	}
	var copies sync.WaitGroup
	if pty := p.PTY(); pty != nil {
		copies.Go(func() {
			x.copy(pty, func(p []byte) *envd.ProcessEvent_DataEvent {
				return &envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Pty{Pty: p}}
			})
		})
	} else {
		x.outputs = []*os.File{s.out, s.err}
		copies.Go(func() {
			x.copy(s.out, func(p []byte) *envd.ProcessEvent_DataEvent {
				return &envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Stdout{Stdout: p}}
			})
		})
		copies.Go(func() {
			x.copy(s.err, func(p []byte) *envd.ProcessEvent_DataEvent {
				return &envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Stderr{Stderr: p}}
			})
		})
	}
	go x.wait(&copies)
	return x, nil
}

// copy sends one stream of the command to its clients until the stream's end; event makes the messages. After
// the end of the command it reads at most as much as a pipe holds, because processes that the command has
// left behind may write for ever.
func (x *command) copy(from *os.File, event func(p []byte) *envd.ProcessEvent_DataEvent) {
	for rest := maxPipe; rest > 0; {
		last := x.exited.Load()
		if last {
			_ = from.SetReadDeadline(time.Now().Add(lastOutput)) // a pipe has deadlines
		}
		buf := make([]byte, pieceSize)
		n, err := from.Read(buf)
		if n > 0 {
			x.send(&envd.ProcessEvent{Event: &envd.ProcessEvent_Data{Data: event(buf[:n])}})
		}
		if last {
			rest -= n
		}
		if err != nil && (last || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return
		}
	}
}

// send sends an event, such as a piece of output, to every client of the command, and drops clients that are
// too slow.
func (x *command) send(event *envd.ProcessEvent) {
	x.mu.Lock()
	var all []*reader
	for r := range x.readers {
		all = append(all, r)
	}
	x.mu.Unlock()
	for _, r := range all {
		select {
		case r.events <- event:
			continue
		case <-r.gone:
			continue
		case <-r.dropped: // for another stream, meanwhile
			continue
		default:
		}
		late := time.NewTimer(slowClient)
		select {
		case r.events <- event:
		case <-r.gone:
		case <-r.dropped:
		case <-late.C:
			x.drop(r)
		}
		late.Stop()
	}
}

// drop stops sending the command's output to a client that is too slow. Both streams of a command may call it
// at the same time.
func (x *command) drop(r *reader) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.readers, r)
	if !r.slow {
		r.slow = true
		close(r.dropped)
	}
}

// wait waits for the end of the command and of its output, and reports that to the clients.
func (x *command) wait(copies *sync.WaitGroup) {
	st, err := x.process.Wait(context.Background())
	copied := make(chan struct{})
	go func() { copies.Wait(); close(copied) }()
	x.exited.Store(true)
	for _, f := range x.outputs {
		_ = f.SetReadDeadline(time.Now()) // wakes its reader
	}
	if x.outputs == nil { // a terminal has no deadline, and its end comes when no process has it any more
		select {
		case <-copied:
		case <-time.After(lastOutput):
		}
	} else {
		<-copied
	}
	end := &envd.ProcessEvent_EndEvent{Exited: st.Signal == 0, ExitCode: int32(st.Code), Status: "exit status " + itoa(st.Code)}
	if st.Signal != 0 {
		end.ExitCode, end.Status = -1, "signal: "+st.Signal.String()
	}
	if err != nil {
		end.ExitCode, end.Exited, end.Status = -1, false, err.Error()
	}
	if end.ExitCode != 0 {
		end.Error = &end.Status
	}
	x.stdin.Close()
	_ = x.process.Close() // the command has ended, and nothing is left to do about it
	for _, f := range x.outputs {
		f.Close()
	}
	x.mu.Lock()
	x.cancel()
	x.ended = &envd.ProcessEvent{Event: &envd.ProcessEvent_End{End: end}}
	x.mu.Unlock()
	close(x.done)
}

// attach adds a client to a running command. The client gets the command's output from now on, through the
// reader returned.
func (x *command) attach() *reader {
	r := newReader()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.readers[r] = true
	return r
}

func newReader() *reader {
	return &reader{events: make(chan *envd.ProcessEvent, maxQueued), gone: make(chan struct{}), dropped: make(chan struct{})}
}

func (x *command) detach(r *reader) {
	r.leave()
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.readers, r)
}

var errNoInput = errs.New("writing input", "", errs.ErrInvalid, "the command has no open input of this kind")

// write writes data to the standard input of the command, or to its terminal, until ctx ends.
func (x *command) write(ctx context.Context, data []byte, terminal bool) error {
	to := x.stdin
	if terminal {
		to = x.process.PTY()
	}
	x.inputMu.Lock()
	defer x.inputMu.Unlock()
	if to == nil {
		return errNoInput
	}
	stop := context.AfterFunc(ctx, func() { _ = to.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := to.Write(data)
	if !stop() {
		_ = to.SetWriteDeadline(time.Time{})
	}
	switch {
	case ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded):
		return ctx.Err()
	case errors.Is(err, os.ErrClosed), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EIO):
		return errNoInput
	}
	return err
}

// closeInput ends the standard input of the command. A second call does nothing.
func (x *command) closeInput() error {
	if x.stdin == nil {
		return errNoInput
	}
	x.stdin.Close()
	return nil
}

func (x *command) resize(size *envd.PTY_Size) error {
	if size == nil || size.Cols > 1<<15 || size.Rows > 1<<15 {
		return errs.New("resizing", "", errs.ErrInvalid, "a terminal has from 0 to 32768 columns and rows")
	}
	if x.process.PTY() == nil {
		return errs.New("resizing", "", errs.ErrInvalid, "the command has no terminal")
	}
	return x.process.Resize(sizeOf(size))
}

func sizeOf(size *envd.PTY_Size) isolate.Size {
	return isolate.Size{Rows: uint16(size.Rows), Cols: uint16(size.Cols)}
}

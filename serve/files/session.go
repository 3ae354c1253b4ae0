package files

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
)

// A Helper is the program that a [Session] starts in a sandbox to work on files. The program calls [Serve]
// for "/", with requests from standard error, because standard input is the program file itself, and replies
// to standard output, as the hidden command snapfs files does. A Helper is safe for concurrent use.
type Helper struct {
	args []string
	copy func() (*os.File, error)
	used atomic.Bool
}

// NewHelper returns the Helper that runs args, the first of which is the path of the program. It copies the
// program into memory when it is first needed, because no sandbox may get a descriptor of the real file.
func NewHelper(args ...string) *Helper {
	return &Helper{args: args[1:], copy: sync.OnceValues(func() (*os.File, error) { return proc.SealedCopy(args[0]) })}
}

// Close frees the copy of the Helper's program in memory. Sessions that were started continue.
func (h *Helper) Close() error {
	if !h.used.Load() {
		return nil
	}
	f, err := h.copy()
	if err != nil {
		return nil //nolint:nilerr // Enter has returned it
	}
	return f.Close()
}

// A Session gives a server access to a sandbox's files as the sandbox's commands see them, with the
// operations of [Tree]. A process in the sandbox carries them out, one at a time.
type Session struct {
	ctx     context.Context
	process supervise.Client
	unhook  func() bool

	mu  sync.Mutex
	out *os.File // requests
	in  *os.File // replies
	buf *bufio.Reader
}

var _ Tree = (*Session)(nil)

// Enter starts a Session in the sandbox called name; the caller closes it. Until then the sandbox counts as
// in use, as by a command. When ctx ends, so do the calls of the Session; the content that Write reads must
// end then too. Cost: the start of a command. Errors: those of [supervise.Manager.ExecWith].
func (h *Helper) Enter(ctx context.Context, e *engine.Engine, name string, o supervise.ExecOptions) (_ *Session, err error) {
	h.used.Store(true)
	program, err := h.copy()
	if err != nil {
		return nil, errs.With("reading files", "", err)
	}
	requests, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer requests.Close()
	in, replies, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	defer replies.Close()
	p, err := e.Supervise.ExecWith(ctx, name, engine.Command{
		Args: slices.Concat([]string{"/proc/self/fd/0"}, h.args), Env: []string{"LC_ALL=C"}, Dir: "/", Stdin: program, Stdout: replies, Stderr: requests,
	}, o)
	if err != nil {
		return nil, errors.Join(err, out.Close(), in.Close())
	}
	s := &Session{ctx: ctx, process: p, out: out, in: in, buf: bufio.NewReaderSize(in, 64<<10)}
	s.unhook = context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		_ = errors.Join(s.in.SetDeadline(past), s.out.SetDeadline(past)) // pipes have deadlines
	})
	return s, nil
}

// endTimeout is how long [Session.Close] waits for the end of the process in the sandbox that served the
// Session, before it kills the process. The end takes little time, because the process has nothing left to
// do.
const endTimeout = 2 * time.Second

// Close ends the process in the sandbox that carried out the Session's operations on files, and waits for its
// end.
func (s *Session) Close() error {
	s.unhook()
	err := errors.Join(s.out.Close(), s.in.Close())
	kill := time.AfterFunc(endTimeout, func() { _ = s.process.Signal(syscall.SIGKILL) }) // it may have ended
	defer kill.Stop()
	_, werr := s.process.Wait(context.WithoutCancel(s.ctx))
	return errors.Join(err, werr, s.process.Close())
}

// call sends a request about files to the process in the sandbox and returns the reply. body, if not nil, is
// the content of a file that is sent after the request.
func (s *Session) call(q message, body io.Reader) (message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := send(s.out, q, nil)
	var source error // of body
	if err == nil && body != nil {
		source, err = sendBody(s.out, body)
	}
	var reply message
	if err == nil {
		reply, err = receive(s.buf)
	}
	switch {
	case err != nil && s.ctx.Err() != nil:
		return message{}, errs.With("reading files", "", errors.Join(errs.ErrInterrupted, s.ctx.Err()))
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE):
		return message{}, errs.New("reading files", "", errs.ErrInterrupted, "the sandbox's processes were ended")
	case err != nil:
		return message{}, errs.With("reading files", "", err)
	case source != nil:
		return message{}, source
	case reply.Error != nil:
		return message{}, reply.Error.err()
	}
	return reply, nil
}

// sendBody sends the content of a file, which it reads from from, as messages. source is the error of reading
// from, which ends the content early; err is the error of sending.
func sendBody(w io.Writer, from io.Reader) (source, err error) {
	buf := make([]byte, maxPiece)
	for {
		n, rerr := from.Read(buf)
		m := message{Last: errors.Is(rerr, io.EOF)}
		if rerr != nil && !m.Last {
			m.Abort, source = true, rerr
		}
		if err := send(w, m, buf[:n]); err != nil || rerr != nil {
			return source, err
		}
	}
}

func (s *Session) infoCall(q message, body io.Reader) (Info, error) {
	reply, err := s.call(q, body)
	if err == nil && reply.Info == nil {
		err = errs.With("reading files", "", errProtocol)
	}
	if err != nil {
		return Info{}, err
	}
	return *reply.Info, nil
}

// Stat describes the file at path in the sandbox; with follow, the target of a symbolic link. See [Tree].
func (s *Session) Stat(path string, follow bool) (Info, error) {
	if err := check("describing", path); err != nil {
		return Info{}, err
	}
	return s.infoCall(message{Op: opStat, Path: []byte(path), Flag: follow}, nil)
}

// List describes the entries of the directory at path in the sandbox, sorted by name; more reports whether
// there are further ones. See [Tree].
func (s *Session) List(path string, o ListOptions) (entries []Info, more bool, err error) {
	if err := check("listing", path); err != nil {
		return nil, false, err
	}
	reply, err := s.call(message{Op: opList, Path: []byte(path), After: []byte(o.After), Limit: o.Limit}, nil)
	if reply.Entries == nil {
		reply.Entries = []Info{}
	}
	return reply.Entries, reply.More, err
}

// Read opens the regular file at path in the sandbox for reading from the offset on. See [Tree].
func (s *Session) Read(path string, offset int64) (io.ReadCloser, Info, error) {
	if err := check("reading", path); err != nil {
		return nil, Info{}, err
	}
	i, err := s.infoCall(message{Op: opRead, Path: []byte(path), Offset: offset}, nil)
	if err != nil {
		return nil, Info{}, err
	}
	return &remote{s: s}, i, nil
}

// Write replaces the file at path in the sandbox atomically, or makes it. See [Tree].
func (s *Session) Write(path string, from io.Reader, o WriteOptions) (Info, error) {
	if err := check("writing", path); err != nil {
		return Info{}, err
	}
	return s.infoCall(message{Op: opWrite, Path: []byte(path), Write: o}, from)
}

// MakeDir makes a directory at path in the sandbox, with parents also its missing parents. See [Tree].
func (s *Session) MakeDir(path string, parents bool) (Info, error) {
	if err := check("making a directory", path); err != nil {
		return Info{}, err
	}
	return s.infoCall(message{Op: opMakeDir, Path: []byte(path), Flag: parents}, nil)
}

// Rename moves the file or directory at the path from in the sandbox to the path to. See [Tree].
func (s *Session) Rename(from, to string) error {
	if err := errors.Join(check("renaming", from), check("renaming", to)); err != nil {
		return err
	}
	_, err := s.call(message{Op: opRename, Path: []byte(from), To: []byte(to)}, nil)
	return err
}

// Remove removes the file or empty directory at path in the sandbox, with all also a directory with its
// content. See [Tree].
func (s *Session) Remove(path string, all bool) error {
	if err := check("removing", path); err != nil {
		return err
	}
	_, err := s.call(message{Op: opRemove, Path: []byte(path), Flag: all}, nil)
	return err
}

// A remote is a file in a sandbox that a [Session] has opened for reading. It requests the content piece by
// piece from the process in the sandbox.
type remote struct {
	s    *Session
	rest []byte
	end  bool
}

func (r *remote) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.end {
			return 0, io.EOF
		}
		reply, err := r.s.call(message{Op: opNext}, nil)
		if err != nil {
			return 0, err
		}
		r.rest, r.end = reply.data, reply.Last
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *remote) Close() error {
	_, err := r.s.call(message{Op: opEnd}, nil)
	return err
}

package files

import (
	"bufio"
	"errors"
	"io"

	"github.com/snapfs/snapfs/errs"
)

// Serve carries out the requests of a [Session], which it reads from in, on the files of tree, and writes the
// replies to out. It returns nil at the end of in. The process that a Session starts in a sandbox calls it.
func Serve(tree Tree, in io.Reader, out io.Writer) error {
	s := server{tree: tree, in: bufio.NewReaderSize(in, 64<<10), out: out}
	defer s.end()
	for {
		q, err := receive(s.in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		reply, data, err := s.do(q)
		if err != nil {
			reply = message{Error: refusalOf(err)}
		}
		if err := send(s.out, reply, data); err != nil {
			return err
		}
	}
}

type server struct {
	tree Tree
	in   *bufio.Reader
	out  io.Writer
	file io.ReadCloser // the one that opRead opened, or nil
	buf  []byte
}

func (s *server) end() {
	if s.file != nil {
		_ = s.file.Close() // only read
		s.file = nil
	}
}

// do carries out, in the process in the sandbox, one request of a [Session] about files. It returns the
// reply, and in data the bytes that follow the reply, such as a file's content.
func (s *server) do(q message) (reply message, data []byte, err error) {
	path, to := string(q.Path), string(q.To)
	var i Info
	switch q.Op {
	case opStat:
		i, err = s.tree.Stat(path, q.Flag)
	case opList:
		reply.Entries, reply.More, err = s.tree.List(path, ListOptions{After: string(q.After), Limit: q.Limit})
		return reply, nil, err
	case opRead:
		s.end()
		s.file, i, err = s.tree.Read(path, q.Offset)
	case opNext:
		return s.next()
	case opEnd:
		s.end()
		return reply, nil, nil
	case opWrite:
		body := &body{in: s.in}
		i, err = s.tree.Write(path, body, q.Write)
		if _, rest := io.Copy(io.Discard, body); err == nil {
			err = rest
		}
	case opMakeDir:
		i, err = s.tree.MakeDir(path, q.Flag)
	case opRename:
		return reply, nil, s.tree.Rename(path, to)
	case opRemove:
		return reply, nil, s.tree.Remove(path, q.Flag)
	case opAttributes, opSetAttributes:
		reply, err = s.attributes(q)
		return reply, nil, err
	default:
		return reply, nil, errs.New("serving files", "", errs.ErrNotSupported, "unknown request (running an older snapfs?)")
	}
	reply.Info = &i
	return reply, nil, err
}

// next returns, for a request of a [Session], the next piece of the file that the Session is reading, as the
// data after the reply.
func (s *server) next() (reply message, data []byte, err error) {
	if s.file == nil {
		return reply, nil, errs.New("reading", "", errs.ErrClosed, "no file is open")
	}
	if s.buf == nil {
		s.buf = make([]byte, maxPiece)
	}
	n, err := s.file.Read(s.buf)
	if errors.Is(err, io.EOF) {
		reply.Last, err = true, nil
	}
	return reply, s.buf[:n], failure("reading", "", err)
}

// errAborted means that a [Session] did not send the whole content of a file to write, so that the old file
// stays.
var errAborted = errs.New("writing", "", errs.ErrInterrupted, "the content did not come whole")

// A body is an io.Reader of the content of a file to write: it reads the messages that follow the request of
// a [Session].
type body struct {
	in   *bufio.Reader
	rest []byte
	err  error
}

// Read reads the content of a file to write, as a client sends it. It returns io.EOF after the last piece,
// and errAborted if the client gave up.
func (b *body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 && b.err == nil {
		m, err := receive(b.in)
		b.rest = m.data
		switch {
		case err != nil || m.Abort:
			b.rest, b.err = nil, errAborted
		case m.Last:
			b.err = io.EOF
		}
	}
	if len(b.rest) == 0 {
		return 0, b.err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

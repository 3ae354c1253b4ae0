package files

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"

	"github.com/snapfs/snapfs/errs"
)

// The names of the requests that a [Session], which gives a server access to a sandbox's files, sends to its
// process in the sandbox.
const (
	opStat    = "stat"
	opList    = "list"
	opRead    = "read" // the reply has the Info; opNext returns the content
	opNext    = "next"
	opEnd     = "end" // closes the file that opRead opened
	opWrite   = "write"
	opMakeDir = "mkdir"
	opRename  = "rename"
	opRemove  = "remove"
)

// A message is a request of a [Session], which gives a server access to a sandbox's files, or a reply of its
// process in the sandbox: one line of JSON, and Bytes bytes after it. A request to write a file is followed
// by messages with the content, the last of which has Last or Abort set.
type message struct {
	Op     string       `json:"op,omitempty"`
	Path   []byte       `json:"path,omitempty"` // any bytes but NUL
	To     []byte       `json:"to,omitempty"`
	Flag   bool         `json:"flag,omitempty"` // follow, parents or all
	Offset int64        `json:"offset,omitempty"`
	After  []byte       `json:"after,omitempty"`
	Limit  int          `json:"limit,omitempty"`
	Write  WriteOptions `json:"write,omitzero"`

	// Of the operations on extended attributes, To is the prefix.
	Paths  [][]byte            `json:"paths,omitempty"`
	Values []map[string]string `json:"values,omitempty"`

	Bytes int  `json:"bytes,omitempty"`
	Last  bool `json:"last,omitempty"`
	Abort bool `json:"abort,omitempty"`

	Info    *Info    `json:"info,omitempty"`
	Entries []Info   `json:"entries,omitempty"`
	More    bool     `json:"more,omitempty"`
	Error   *refusal `json:"error,omitempty"`

	data []byte // the bytes after the line
}

// A refusal is, in a reply of the process in the sandbox to a [Session], the error of the requested operation
// on a file.
type refusal struct {
	Op   string `json:"op,omitempty"`
	Path []byte `json:"path,omitempty"`
	Kind string `json:"kind,omitempty"`
	Text string `json:"text"`
}

func refusalOf(err error) *refusal {
	r := &refusal{Text: err.Error()}
	if kind := errs.KindOf(err); kind != nil {
		r.Kind = kind.Error()
	}
	var e *errs.Error
	if errors.As(err, &e) && e.Err != nil {
		r.Op, r.Path, r.Text = e.Op, []byte(e.Path), e.Err.Error()
	}
	return r
}

func (r *refusal) err() error {
	return &errs.Error{Op: r.Op, Path: string(r.Path), Kind: errs.KindNamed(r.Kind), Err: errors.New(r.Text)}
}

// Bounds in bytes of a message between a [Session] and its process: the line of JSON, and the data after it.
// The sandbox may have taken the process over, so its messages are not trusted, and a larger one ends the
// Session's call with an error.
const (
	maxLine  = 4 << 20 // a list of maxList entries has less
	maxPiece = 256 << 10
)

var errProtocol = errors.New("the process that reads the sandbox's files sent what is no reply")

// send writes the message m, a request about files or its reply, between a [Session] and its process in the
// sandbox to w as a line of JSON, and the bytes data after it.
func send(w io.Writer, m message, data []byte) error {
	m.Bytes = len(data)
	line, err := json.Marshal(m)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	if err == nil && len(data) > 0 {
		_, err = w.Write(data)
	}
	return err
}

// receive reads a message, a request about files or its reply, between a [Session] and its process in the
// sandbox, with the bytes that follow its line. Errors: errProtocol for an invalid or too long one; those of
// r.
func receive(r *bufio.Reader) (m message, err error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return m, errProtocol
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return m, err
		}
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Bytes < 0 || m.Bytes > maxPiece {
		return m, errProtocol
	}
	m.data = make([]byte, m.Bytes)
	_, err = io.ReadFull(r, m.data)
	return m, err
}

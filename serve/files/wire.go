package files

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"

	"github.com/snapfs/snapfs/errs"
)

// The operations of a request.
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

// A message is a request or a reply: one line of JSON, and Bytes bytes after it. After the message of opWrite follow
// messages with the content, up to one with Last or Abort set.
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

// A refusal is an error of the other process.
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

// Bounds of a message, which may come from a process that a sandbox has taken over.
const (
	maxLine  = 4 << 20 // a list of MaxList entries has less
	maxPiece = 256 << 10
)

var errProtocol = errors.New("the process that reads the sandbox's files sent what is no reply")

// send writes a message; data are the bytes after its line.
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

// receive reads a message.
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

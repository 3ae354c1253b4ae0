package fusecow

import (
	"encoding/json"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
)

// A request is what one process asks of the one that serves a fork.
type request struct {
	// Mount: for one more mount of it.
	Mount    bool `json:"mount,omitempty"`
	ReadOnly bool `json:"readonly,omitempty"`
	// Flush: to tell the log of everything.
	Flush bool `json:"flush,omitempty"`
	// Freeze: to go on with the layer of this name, which is empty.
	Freeze string `json:"freeze,omitempty"`
}

// An answer to it; nothing is wrong where both are empty.
type answer struct {
	Wrong string     `json:"wrong,omitempty"`
	Errno unix.Errno `json:"errno,omitempty"`
}

// errNobody: no process serves the fork.
var errNobody = errors.New("nobody serves it")

// ask asks who serves a layer. EBUSY: he is about to go.
func (b *backend) ask(layer string, q request) (*os.File, error) {
	path := b.askPath(layer)
	p, err := kernel.DialPacket(path)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return nil, errNobody
	case errors.Is(err, unix.EAGAIN):
		return nil, unix.EBUSY
	case err != nil:
		return nil, &os.PathError{Op: "connect", Path: path, Err: err}
	}
	defer p.Close() //nolint:errcheck // nothing is written
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	if err := p.Send(text); err != nil {
		return nil, &os.PathError{Op: "ask", Path: path, Err: unix.EBUSY}
	}
	text, files, err := p.Receive()
	if err != nil {
		return nil, &os.PathError{Op: "ask", Path: path, Err: unix.EBUSY}
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, err
	}
	switch {
	case a.Errno != 0:
		return nil, &os.PathError{Op: "serve", Path: path, Err: a.Errno}
	case a.Wrong != "":
		return nil, because(snapshot.ErrCorrupt, path, a.Wrong)
	case len(files) > 0:
		return files[0], nil
	}
	return nil, nil
}

// answer answers until the socket is shut down.
func (s *server) answer(socket *kernel.Packet) {
	for {
		p, err := socket.Accept()
		if err != nil {
			_ = socket.Close() // nothing is written
			return
		}
		go s.one(p)
	}
}

// one answers one request of this user's, or of root's.
func (s *server) one(p *kernel.Packet) {
	defer p.Close() //nolint:errcheck // it was answered, or not
	if uid, err := p.PeerUID(); err != nil || uid != 0 && int(uid) != os.Geteuid() {
		return
	}
	text, _, err := p.Receive()
	if err != nil {
		return
	}
	var q request
	var root *os.File
	if err = json.Unmarshal(text, &q); err == nil {
		if root, err = s.do(q); errors.Is(err, unix.ENOTCONN) { // the last mount has gone
			err = unix.EBUSY
		}
	}
	var a answer
	if err != nil {
		a.Wrong = err.Error()
		errors.As(err, &a.Errno)
	}
	text, err = json.Marshal(a)
	switch {
	case err != nil:
	case root != nil:
		_ = p.Send(text, root) // who asked has gone, if not
		root.Close()
	default:
		_ = p.Send(text)
	}
}

func (s *server) do(q request) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.socket == nil:
		return nil, unix.EBUSY
	case q.Mount:
		attr := uint64(0)
		if q.ReadOnly {
			attr = unix.MOUNT_ATTR_RDONLY
		}
		return s.fuse.More(attr)
	}
	if err := s.fuse.Flush(); err != nil || q.Flush {
		return nil, err
	}
	return nil, s.freeze(q.Freeze)
}

// freeze has the fork go on with another layer, in its record too. Holds mu. Who asks
// holds the lock of the fork.
func (s *server) freeze(next string) error {
	r, err := s.b.fork(s.id)
	if err != nil {
		return err
	}
	if r.upper() != s.layer {
		return unix.EBUSY
	}
	socket, err := s.listen(next)
	if err != nil {
		return err
	}
	r.Layers = append(r.Layers, next)
	err = s.fs.Freeze(s.b.layerPath(next), func() error { return s.b.replace(s.b.forkPath(s.id), &r) })
	if err != nil {
		_ = os.Remove(s.b.askPath(next)) // it goes with the layer, else
		_ = socket.Close()
		return err
	}
	s.hush()
	s.layer, s.socket = next, socket
	go s.answer(socket)
	return nil
}

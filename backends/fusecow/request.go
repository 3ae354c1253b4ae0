//go:build linux

package fusecow

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"golang.org/x/sys/unix"
)

// A request is what one process asks of the one that serves a fork.
type request struct {
	// Mount: for one more mount of it.
	Mount    bool       `json:"mount,omitempty"`
	ReadOnly bool       `json:"readonly,omitempty"`
	View     layer.View `json:"side,omitempty"`
	// Flush: to tell the log of everything.
	Flush bool `json:"flush,omitempty"`
	// Freeze: to go on with the layer of this name, which is empty.
	Freeze string `json:"freeze,omitempty"`
	// Return: to serve what this record makes of the same tree, and have it be the fork's.
	RollBack *record `json:"return,omitempty"`
	// Late: which files of the tree below had changed when they were read.
	LateReads bool `json:"late,omitempty"`
	// Limit: to count where the fork's record says.
	Recount bool `json:"limit,omitempty"`

	// lock is the fork's, which goes along with what changes its record: who serves it may come to that when
	// who asked was killed, and nobody is to have the lock before.
	lock *os.File
}

// An answer to it, or to a start; nothing is wrong where it is empty.
type reply struct {
	Failure   string   `json:"wrong,omitempty"`
	Path      string   `json:"path,omitempty"`
	Kind      string   `json:"kind,omitempty"` // the text of one of kinds
	Hints     []string `json:"hints,omitempty"`
	LateReads [][]byte `json:"late,omitempty"` // paths, of any bytes
	// Side is that of the mount.
	View layer.View `json:"side,omitempty"`
}

// kinds are what can be wrong with a tree to be served.
var kinds = []error{
	errs.ErrNotFound, errs.ErrBusy, errs.ErrReadOnly, errs.ErrNoSpace, errs.ErrNotSupported, errs.ErrDenied,
	errs.ErrInterrupted,
}

// wrong makes an answer of an error.
func failureReply(err error) (a reply) {
	if err == nil {
		return a
	}
	var e *errs.Error
	if errors.As(fail("", "", err), &e) {
		a = reply{Failure: e.Err.Error(), Path: e.Path, Kind: e.Kind.Error(), Hints: e.Hints}
	}
	return a
}

// err is the error that an answer was made of. EBUSY: it may be tried again.
func (a *reply) err() error {
	switch {
	case a.Failure == "":
		return nil
	case a.Kind == errs.ErrBusy.Error():
		return &os.PathError{Op: "serve", Path: a.Path, Err: unix.EBUSY}
	}
	kind := errs.ErrCorrupt
	for _, k := range kinds {
		if k.Error() == a.Kind {
			kind = k
		}
	}
	return because(kind, a.Path, a.Failure, a.Hints...)
}

// errNobody: no process serves the fork.
var errNotServed = errors.New("nobody serves it")

// ask asks who serves a layer. EBUSY: he is about to go.
func (b *backend) requestLayer(layer string, q request) (*os.File, error) {
	return requestMount(b.socketPath(layer), q)
}

// ask asks who listens at path.
func requestMount(path string, q request) (*os.File, error) {
	root, _, err := requestReply(path, q)
	return root, err
}

func requestReply(path string, q request) (*os.File, *reply, error) {
	p, err := fdsock.Dial(path)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return nil, nil, errNotServed
	case errors.Is(err, unix.EAGAIN):
		return nil, nil, unix.EBUSY
	case err != nil:
		return nil, nil, &os.PathError{Op: "connect", Path: path, Err: err}
	}
	defer p.Close() //nolint:errcheck // nothing is written
	root, a, err := exchange(p, q, q.lock)
	if errors.Is(err, errHungUp) {
		err = &os.PathError{Op: "ask", Path: path, Err: unix.EBUSY}
	}
	return root, a, err
}

// lateAt asks who listens at path which files had changed below when they were read: none, where
// nobody listens.
func lateReadsAt(path string) (all []string, err error) {
	_, a, err := requestReply(path, request{LateReads: true})
	if errors.Is(err, errNotServed) || errors.Is(err, unix.EBUSY) { // he ends, and nothing is read any more
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, path := range a.LateReads {
		all = append(all, string(path))
	}
	return all, nil
}

// errHungUp: who was asked has ended.
var errHungUp = errors.New("the process that serves it has ended")

// demand sends what is wanted to the one at the other end, with a lock unless that is nil, and answers with the mount
// that comes back, if one does.
func exchange(p *fdsock.Conn, what any, lock *os.File) (*os.File, *reply, error) {
	text, err := json.Marshal(what)
	if err != nil {
		return nil, nil, err
	}
	if lock == nil {
		err = p.Send(text)
	} else {
		err = p.Send(text, lock)
	}
	if err != nil {
		return nil, nil, errHungUp
	}
	text, files, err := p.Receive()
	if err != nil {
		return nil, nil, errHungUp
	}
	var a reply
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, nil, err
	}
	if err := a.err(); err != nil || len(files) == 0 {
		return nil, &a, err
	}
	return files[0], &a, nil
}

// reply answers who asked. A mount that he does not get goes with its descriptor.
func sendMount(p *fdsock.Conn, root *os.File, err error) { sendReply(p, root, failureReply(err)) }

func sendReply(p *fdsock.Conn, root *os.File, a reply) {
	text, err := json.Marshal(a)
	switch {
	case err != nil:
	case root != nil:
		_ = p.Send(text, root) // who asked has gone, if not
	default:
		_ = p.Send(text)
	}
	if root != nil {
		root.Close()
	}
}

// answer answers until the socket is shut down.
func (s *server) acceptRequests(socket *fdsock.Conn) {
	for {
		p, err := socket.Accept()
		if err != nil {
			_ = socket.Close() // nothing is written
			return
		}
		go s.serveRequest(p)
	}
}

// one answers one request of this user's, or of root's.
func (s *server) serveRequest(p *fdsock.Conn) {
	defer p.Close() //nolint:errcheck // it was answered, or not
	if uid, err := p.PeerUID(); err != nil || uid != 0 && int(uid) != os.Geteuid() {
		return
	}
	text, lock, err := p.Receive()
	if err != nil {
		return
	}
	for _, f := range lock {
		defer f.Close()
	}
	var q request
	var root *os.File
	if err = json.Unmarshal(text, &q); err == nil && q.LateReads {
		sendReply(p, nil, s.lateReads())
		return
	}
	if err == nil {
		if root, err = s.handle(q); errors.Is(err, unix.ENOTCONN) { // the last mount has gone
			err = unix.EBUSY
		}
	}
	a := failureReply(err)
	a.View = q.View
	sendReply(p, root, a)
}

func (s *server) lateReads() (a reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range s.fs.LateReads() {
		a.LateReads = append(a.LateReads, []byte(path))
	}
	return a
}

func (s *server) handle(q request) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.socket == nil:
		return nil, unix.EBUSY
	case q.Mount:
		return s.mountView(q.View, q.ReadOnly)
	case s.fork == "":
		return nil, unix.EINVAL // nothing of it is written to
	case q.Recount:
		r, err := s.b.fork(s.fork)
		if err == nil {
			err = s.b.setQuota(s.fs, &r)
		}
		return nil, err
	}
	if err := s.views[layer.Whole].Flush(); err != nil || q.Flush {
		return nil, err
	}
	return nil, s.advance(&q)
}

// goOn has the fork go on with another layer, in its record too. Holds mu. Who asks
// holds the lock of the fork, and [backend.lock], shared; but he may be killed meanwhile, and
// a sweep replace the record or take the layer: so that one is taken here too.
func (s *server) advance(q *request) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	unlock, err := s.b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := s.b.fork(s.fork)
	if err != nil {
		return err
	}
	if r.upper() != s.layer {
		return unix.EBUSY
	}
	if q.RollBack != nil {
		return s.rollBack(q.RollBack)
	}
	r = r.above(q.Freeze)
	return s.switchRecord(&r, func(then func() error) error { return s.fs.Freeze(s.b.layerPath(r.upper()), then) })
}

// goBack has another filesystem answer for the fork, of other layers over the same tree.
func (s *server) rollBack(r *record) error {
	next, err := layer.Open(s.b.optionsOn(s.fs.Lower(), r))
	if err != nil {
		return err
	}
	if err = s.b.setQuota(next, r); err == nil {
		err = s.switchRecord(r, func(then func() error) error {
			return s.views[layer.Whole].Switch(next, func() error {
				if err := then(); err != nil {
					return err
				}
				s.fs = next
				return nil
			})
		})
	}
	if errors.Is(err, layer.ErrOtherFile) {
		err = because(errs.ErrNotSupported, s.b.forkPath(s.fork), err.Error())
	}
	if s.fs != next {
		err = errors.Join(err, next.Close())
	}
	return err
}

// follow listens beside the topmost layer of a record, which change is to make the fork's by
// calling then; from there on nobody listens beside the old one any more.
func (s *server) switchRecord(r *record, change func(then func() error) error) error {
	at := s.b.socketPath(r.upper())
	socket, err := listen(at)
	if err != nil {
		return err
	}
	done := false
	err = change(func() error {
		err := s.b.replace(s.b.forkPath(s.fork), r)
		done = err == nil
		return err
	})
	if !done {
		_ = os.Remove(at) // it goes with the layer, else
		_ = socket.Close()
		return err
	}
	s.stopListening()
	s.layer, s.socketPath, s.socket = r.upper(), at, socket
	go s.acceptRequests(socket)
	return err
}

//go:build linux

package fusecow

import (
	"context"
	"errors"
	"os"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/proc"
	"golang.org/x/sys/unix"
)

// A request is a message to the process that serves a fork's mounts. Exactly one of Mount, Flush, Freeze,
// RollBack, LateReads and Recount is set.
type request struct {
	// Mount requests another mount of the fork.
	Mount    bool       `json:"mount,omitempty"`
	ReadOnly bool       `json:"readonly,omitempty"`
	View     layer.View `json:"side,omitempty"`
	// Flush requests that the server commits all changes to its log.
	Flush bool `json:"flush,omitempty"`
	// Freeze requests that the server continues on the empty layer of this name.
	Freeze string `json:"freeze,omitempty"`
	// RollBack requests that the server serves this record of the same tree, and makes it the
	// fork's record.
	RollBack *record `json:"return,omitempty"`
	// LateReads requests the list of lower files that had already changed when the fork read
	// them.
	LateReads bool `json:"late,omitempty"`
	// Recount requests that the server charges the quota that the fork's record now names.
	Recount bool `json:"limit,omitempty"`

	// Hide says that a file with names to hide comes with a request to mount: see writeNames.
	Hide bool `json:"hide,omitempty"`

	// file is the file to send. With requests that change the record it is the one with the
	// fork's lock: the lock then lasts until the server has handled the request, even if the
	// sender is killed.
	file *os.File
	// names are those that the file of a request with Hide holds.
	names []string
}

// A reply is the answer of the process that serves a fork's mounts to a [request] or a [startRequest].
// Failure is empty after success.
type reply struct {
	Failure   string   `json:"wrong,omitempty"`
	Path      string   `json:"path,omitempty"`
	Kind      string   `json:"kind,omitempty"` // text of one of kinds
	Hints     []string `json:"hints,omitempty"`
	LateReads [][]byte `json:"late,omitempty"` // paths, which may be any bytes
	// View is the view of the mount.
	View layer.View `json:"side,omitempty"`
}

// kinds are the error kinds that a reply of a fork's server can carry, by their texts, to the process that
// sent the request.
var kinds = []error{
	errs.ErrNotFound, errs.ErrBusy, errs.ErrReadOnly, errs.ErrNoSpace, errs.ErrNotSupported, errs.ErrDenied,
	errs.ErrInterrupted,
}

// failureReply converts an error of a fork's server to a reply that carries its text, path, kind and hints to
// the process that sent the request.
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

// err returns the error that a server's reply carries, or nil. EBUSY means that the request may be repeated.
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

// errNotServed means that no server process has the fork mounted, so that the caller starts one or does
// without.
var errNotServed = errors.New("no process serves the fork")

// requestLayer sends a request to the FUSE server of a writable layer, for instance to mount it, and returns
// the mount in its reply, or nil. EBUSY means that the server is about to exit.
func (b *backend) requestLayer(layer string, q request) (*os.File, error) {
	return requestMount(b.socketPath(layer), q)
}

// requestMount sends the request q to the server of a fork that listens at the socket path. It returns the
// detached mount in the server's reply, which the caller closes, or nil if the reply has none.
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
	wake(p)
	root, a, err := exchange(p, q, q.file)
	if errors.Is(err, errHungUp) {
		err = &os.PathError{Op: "ask", Path: path, Err: unix.EBUSY}
	}
	return root, a, err
}

// wake continues the server at the other end of p if a signal such as SIGSTOP has stopped it. A stopped server
// answers nobody: this process would wait for it, and for its mounts, and obey no signal but SIGKILL. A server
// that is frozen or traced stays so.
//
// The signal reaches no other process, even if the server ends meanwhile and its pid is used again: the server
// alone holds the other end of p, so that an end of p which is open shows that the pid, and the descriptor of
// the process that was opened before, are still the server's.
func wake(p *fdsock.Conn) {
	server, err := p.Peer()
	if err != nil {
		return
	}
	fd, err := unix.PidfdOpen(server.PID, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if !p.HungUp() && proc.Stopped(server) {
		_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0) // an error: it belongs to another user
	}
}

// lateReadsAt asks the server that listens at the socket path for the files of the real tree that had changed
// since the capture when they were read, and returns their paths in the tree. It returns none if no server
// listens.
func lateReadsAt(path string) (all []string, err error) {
	_, a, err := requestReply(path, request{LateReads: true})
	if errors.Is(err, errNotServed) || errors.Is(err, unix.EBUSY) { // the server is exiting, and nobody reads any more
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

// errHungUp means that the server process of a fork ended before it replied to a request. The request may be
// repeated with another server.
var errHungUp = errors.New("the server has ended")

// exchange sends the message what to the server at p, with the open file attached unless that is nil. It
// returns the detached mount that came with the reply, or nil, which the caller closes, and the reply.
func exchange(p *fdsock.Conn, what any, attached *os.File) (*os.File, *reply, error) {
	text, err := exactjson.Encode(what)
	if err != nil {
		return nil, nil, err
	}
	if attached == nil {
		err = p.Send(text)
	} else {
		err = p.Send(text, attached)
	}
	if err != nil {
		return nil, nil, errHungUp
	}
	text, files, err := p.Receive()
	if err != nil {
		return nil, nil, errHungUp
	}
	var a reply
	if err := exactjson.Decode(text, &a); err != nil {
		return nil, nil, err
	}
	if err := a.err(); err != nil || len(files) == 0 {
		return nil, &a, err
	}
	return files[0], &a, nil
}

// sendMount replies to a request for a mount, over p: with the detached mount root, which it closes, or with
// err.
func sendMount(p *fdsock.Conn, root *os.File, err error) { sendReply(p, root, failureReply(err)) }

func sendReply(p *fdsock.Conn, root *os.File, a reply) {
	text, err := exactjson.Encode(a)
	switch {
	case err != nil:
	case root != nil:
		_ = p.Send(text, root) // after an error the client has gone, and the mount with it
	default:
		_ = p.Send(text)
	}
	if root != nil {
		root.Close()
	}
}

// acceptRequests handles each request of another process, such as for a mount, that comes to the socket in a
// goroutine of its own. It returns when the socket is shut down.
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

// serveRequest reads one request from the connection p, handles it, replies and closes p. It ignores
// processes of other users, except root.
func (s *server) serveRequest(p *fdsock.Conn) {
	defer p.Close() //nolint:errcheck // it was answered, or not
	if uid, err := p.PeerUID(); err != nil || uid != 0 && int(uid) != os.Geteuid() {
		return
	}
	text, files, err := p.Receive()
	if err != nil {
		return
	}
	for _, f := range files {
		defer f.Close()
	}
	var q request
	var root *os.File
	if err = exactjson.Decode(text, &q); err == nil && q.LateReads {
		sendReply(p, nil, s.lateReads())
		return
	}
	if err == nil && q.Mount && q.Hide {
		q.names, err = readNames(files)
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
		if q.Hide {
			s.hide = q.names
			s.fs.Hide(s.hide)
		}
		return s.mountView(q.View, q.ReadOnly)
	case s.fork == "":
		return nil, unix.EINVAL // this tree is read-only
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

// advance freezes the fork's top layer, or takes the fork back to an older state, and makes the server
// continue on another layer, also in the fork's record. The caller holds mu, and the client holds the fork's
// lock and [backend.lock], shared. The server takes [backend.lock] too, because the client may be killed and
// a sweep could then remove the layer.
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

// rollBack makes the mounts of the fork show an earlier state of the same tree: the layers that the record r
// names. It does the server's part of [backend.Return].
func (s *server) rollBack(r *record) error {
	next, err := layer.Open(s.b.optionsOn(s.fs.Lower(), r))
	if err != nil {
		return err
	}
	next.Hide(s.hide)
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

// switchRecord moves the server to the record r: it listens in the topmost layer of r, and calls change to
// switch the filesystem. change calls then, which makes r the fork's record. After that no process listens in
// the layer used before.
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
		_ = os.Remove(at) // otherwise it is removed with the layer
		_ = socket.Close()
		return err
	}
	s.stopListening()
	s.layer, s.socketPath, s.socket = r.upper(), at, socket
	go s.acceptRequests(socket)
	return err
}

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/isolate"
)

// A Process is a command in a sandbox, held by this process or by a keeper.
type Process interface {
	// Wait answers with how it ended.
	Wait(ctx context.Context) (isolate.Status, error)
	// Signal sends it a signal.
	Signal(sig syscall.Signal) error
	// PTY is the outer end of its terminal, or nil.
	PTY() *os.File
	// Resize tells its terminal the new size.
	Resize(size isolate.Size) error
	// Close gives back what is held for it here. A command whose caller
	// closes before it has ended gets SIGHUP.
	Close() error
}

// A Guest is a command in a sandbox that a keeper holds.
type Guest interface {
	Process
	// Hit is the limit that ended the command, or one that it met, or nil. It
	// answers when the command has ended.
	Hit() *catalog.Hit
}

// Exec runs a command in a sandbox, starting a keeper for it where none runs.
// Errors: snapshot.ErrNotFound, ErrBusy; isolate's.
func (e *Engine) Exec(ctx context.Context, name string, command isolate.Command) (Guest, error) {
	h, err := e.hold(ctx, name, "entering")
	if err != nil {
		return nil, err
	}
	defer h.Release()
	if err := refuseOverdue(h.Record); err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		p, err := e.enter(ctx, h, command)
		if errors.Is(err, errLeft) && tries < 3 {
			continue
		}
		return p, err
	}
}

// errLeft: the keeper ended before it could begin the command.
var errLeft = errors.New("its keeper has just ended")

// enter asks the keeper, and starts one where none is.
func (e *Engine) enter(ctx context.Context, h *catalog.Held, command isolate.Command) (Guest, error) {
	conn, err := e.dial(h.Record)
	if err == nil && conn == nil {
		if err = e.startKeeper(ctx, h); err == nil {
			conn, err = e.dial(h.Record)
		}
	}
	if err != nil {
		return nil, err
	}
	left := &snapshot.Error{Op: "entering", Path: h.Name, Kind: snapshot.ErrInterrupted, Err: errLeft}
	if conn == nil {
		return nil, left
	}
	p, err := askExec(conn, command)
	if err == nil {
		return p, nil
	}
	if errors.Is(err, errLeft) || errors.Is(err, snapshot.ErrInterrupted) { // its box is closed by now
		err = errors.Join(left, e.settle(ctx, h))
	}
	return nil, errors.Join(err, conn.Close())
}

// hungUp: nobody listens at the other end any more.
func hungUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// dial connects to a sandbox's keeper, nil where none runs.
func (e *Engine) dial(rec *catalog.Record) (*kernel.Packet, error) {
	conn, err := kernel.DialPacket(e.socket(rec.Name))
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, &snapshot.Error{Op: "entering", Path: rec.Name, Kind: snapshot.KindOf(err), Err: err}
	}
	return conn, nil
}

// guest is a process that a keeper holds.
type guest struct {
	conn *kernel.Packet
	pty  *os.File
	done chan struct{}
	once sync.Once
	st   isolate.Status
	hit  *catalog.Hit
	err  error
}

func askExec(conn *kernel.Packet, c isolate.Command) (*guest, error) {
	w := wireCommand{Args: c.Args, Env: c.Env, Dir: c.Dir, TTY: c.TTY}
	var files []*os.File
	for i, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f != nil {
			w.Streams, files = append(w.Streams, i), append(files, f)
		}
	}
	msg, err := json.Marshal(ask{Exec: &w})
	if err != nil {
		return nil, fmt.Errorf("describing the command: %w", err)
	}
	if err := conn.Send(msg, files...); err != nil {
		if errors.Is(err, syscall.EMSGSIZE) {
			return nil, &isolate.CommandError{Path: c.Args[0], Errno: syscall.E2BIG}
		}
		if hungUp(err) {
			return nil, errLeft
		}
		return nil, fmt.Errorf("asking the keeper: %w", err)
	}
	t, files, err := hear(conn)
	switch {
	case err != nil:
		return nil, err
	case t.Gone:
		return nil, errLeft
	case t.Errno != 0:
		return nil, &isolate.CommandError{Path: c.Args[0], Errno: t.Errno}
	case !t.Started:
		return nil, t.refused()
	}
	g := &guest{conn: conn, done: make(chan struct{})}
	if len(files) > 0 {
		g.pty = files[0]
	}
	go g.listen()
	return g, nil
}

// hear waits for what the keeper has to say.
func hear(conn *kernel.Packet) (tell, []*os.File, error) {
	var t tell
	msg, files, err := conn.Receive()
	if err != nil {
		return t, nil, &snapshot.Error{Op: "hearing from the keeper", Kind: snapshot.ErrInterrupted, Err: err}
	}
	return t, files, json.Unmarshal(msg, &t)
}

func (g *guest) listen() {
	defer close(g.done)
	t, files, err := hear(g.conn)
	closeAll(files)
	switch {
	case err != nil: // the keeper is gone, and with it every process
		g.st = isolate.Status{Signal: syscall.SIGKILL}
	case t.Status != nil:
		g.st, g.hit = *t.Status, t.Hit
	default:
		g.err = t.refused()
	}
}

func (g *guest) Wait(ctx context.Context) (isolate.Status, error) {
	select {
	case <-g.done:
		return g.st, g.err
	case <-ctx.Done():
		return isolate.Status{}, &snapshot.Error{Op: "waiting", Kind: snapshot.ErrInterrupted, Err: ctx.Err()}
	}
}

func (g *guest) Signal(sig syscall.Signal) error {
	msg, err := json.Marshal(ask{Signal: sig})
	if err == nil {
		err = g.conn.Send(msg)
	}
	if hungUp(err) {
		return nil // it has ended
	}
	return err
}

func (g *guest) Hit() *catalog.Hit {
	<-g.done
	return g.hit
}

func (g *guest) PTY() *os.File { return g.pty }

func (g *guest) Resize(size isolate.Size) error {
	if g.pty == nil {
		return nil
	}
	return isolate.SetSize(g.pty, size)
}

func (g *guest) Close() (err error) {
	g.once.Do(func() {
		g.conn.Shutdown() //nolint:errcheck // it may have ended
		<-g.done
		err = g.conn.Close()
		if g.pty != nil {
			err = errors.Join(err, g.pty.Close())
		}
	})
	return err
}

package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/fdsock"
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

// A Client is a command in a sandbox that a keeper holds.
type Client interface {
	Process
	// Hit is the limit that ended the command, or one that it met, or nil. It
	// answers when the command has ended.
	Hit() *catalog.LimitHit
}

// Exec runs a command in a sandbox, starting a keeper for it where none runs.
// Errors: errs.ErrNotFound; ErrBusy, also where its keeper does not answer;
// isolate's; ErrWall where its policy wants its walls to be tried.
func (sv *Manager) Exec(ctx context.Context, name string, command isolate.Command) (Client, error) {
	return sv.ExecWith(ctx, name, command, ExecOptions{})
}

// ExecOptions say under which circumstances a command is run. The zero value is what
// [Engine.Exec] does.
type ExecOptions struct {
	// Admission is asked where nothing runs in the sandbox yet.
	Admission Admission
	// Prove: the walls of the sandbox are tried first, also where something runs in it.
	Prove bool
}

// ExecWith is Exec under circumstances. Errors: also admission.ErrNoRoom and ErrWall.
func (sv *Manager) ExecWith(ctx context.Context, name string, command isolate.Command, o ExecOptions) (Client, error) {
	before, err := countStops(sv.cat.Path(name))
	if err != nil {
		return nil, err
	}
	for {
		p, err := sv.execOnce(ctx, name, command, o, before)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, errUnadmitted) {
			return nil, sv.sandboxes.ExplainMissingWorkspace(ctx, err, name, command)
		}
	}
}

// errUnadmitted: what ran in the sandbox, so that nothing had to wait, has just ended.
var errUnadmitted = errors.New("it needs a place")

// execOnce is ExecWith where what ran in the sandbox goes on. before is how often that was
// stopped when the command was asked for.
func (sv *Manager) execOnce(ctx context.Context, name string, command isolate.Command, o ExecOptions, before int64) (Client, error) {
	var place *admission.Slot
	when := o.Admission
	if !when.Plain() { // before the lock: nobody is to wait with it
		var err error
		if place, err = sv.admitTo(ctx, name, when); err != nil {
			return nil, err
		}
		defer func() { sv.ReleaseSlot(place) }() // unless it is the keeper's
	}
	if err := fault.Point(ctx, "wait for the sandbox"); err != nil {
		return nil, err
	}
	h, err := sv.Hold(ctx, name, "entering")
	if err != nil {
		return nil, err
	}
	defer h.Release()
	if err := sandbox.RefuseOverdue(h.Record, catalog.Now()); err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		if err := sv.stoppedSince(name, before); err != nil {
			return nil, err
		}
		p, err := sv.execInSupervisor(ctx, h, command, place, o, before)
		if errors.Is(err, errEnded) && tries < 3 {
			continue
		}
		return p, err
	}
}

// execInSupervisor asks the keeper, and starts one where none is, which gets the place.
func (sv *Manager) execInSupervisor(ctx context.Context, h *catalog.Locked, command isolate.Command, place *admission.Slot, o ExecOptions, before int64) (Client, error) {
	conn, err := sv.Dial(ctx, h.Record)
	if err == nil && conn == nil {
		if !place.Held() && !o.Admission.Plain() {
			return nil, errUnadmitted
		}
		if err = sv.spawnSupervisor(ctx, h, place); err == nil {
			conn, err = sv.Dial(ctx, h.Record)
		}
	}
	if err != nil {
		return nil, err
	}
	left := &errs.Error{Op: "entering", Path: h.Name, Kind: errs.ErrInterrupted, Err: errEnded}
	if conn == nil {
		return nil, left
	}
	if err := fault.Point(ctx, "ask for the command"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p, proof, err := requestExec(ctx, conn, h.Name, command, execRequest{Prove: o.Prove, Stops: &before}, sv.notice)
	if proof != nil {
		h.Proof = proof
		if serr := h.Save(); err == nil && serr != nil {
			return nil, errors.Join(serr, p.Close())
		}
	}
	if err == nil {
		return p, nil
	}
	if errors.Is(err, errStopped) {
		return nil, errors.Join(sv.abandon(ctx, h, err), conn.Close())
	}
	if errors.Is(err, errEnded) || errors.Is(err, errs.ErrInterrupted) && !errors.Is(err, ErrSilent) { // its box is closed by now
		err = errors.Join(left, sv.Sync(ctx, h))
	}
	return nil, errors.Join(err, conn.Close())
}

// client is a process that a keeper holds.
type client struct {
	conn *fdsock.Conn
	pty  *os.File
	done chan struct{}
	once sync.Once
	st   isolate.Status
	hit  *catalog.LimitHit
	err  error
}

// requestExec has the keeper run a command, of which w says how. note is told what happens to
// it meanwhile. Error: also errStopped.
func requestExec(ctx context.Context, conn *fdsock.Conn, name string, c isolate.Command, w execRequest, note func(string)) (*client, *catalog.Proof, error) {
	w.Args, w.Env, w.Dir, w.TTY = c.Args, c.Env, c.Dir, c.TTY
	var files []*os.File
	for i, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f != nil {
			w.Streams, files = append(w.Streams, i), append(files, f)
		}
	}
	msg, err := json.Marshal(Request{Exec: &w})
	if err != nil {
		return nil, nil, fmt.Errorf("describing the command: %w", err)
	}
	if err := conn.Send(msg, files...); err != nil {
		if errors.Is(err, syscall.EMSGSIZE) {
			return nil, nil, &isolate.CommandError{Path: c.Args[0], Errno: syscall.E2BIG}
		}
		if fdsock.HungUp(err) {
			return nil, nil, errEnded
		}
		return nil, nil, fmt.Errorf("asking the keeper: %w", err)
	}
	t, files, err := receiveWithin(ctx, conn, name)
	switch {
	case err != nil:
		return nil, nil, err
	case t.Stopped:
		return nil, nil, &errs.Error{Op: "entering", Path: name, Kind: errs.ErrInterrupted, Err: errStopped}
	case t.Gone:
		return nil, nil, errEnded
	case t.Errno != 0:
		return nil, t.Proof, &isolate.CommandError{Path: c.Args[0], Errno: t.Errno}
	case !t.Started:
		return nil, t.Proof, t.refusal()
	}
	g := &client{conn: conn, done: make(chan struct{})}
	if len(files) > 0 {
		g.pty = files[0]
	}
	go g.listen(note)
	return g, t.Proof, nil
}

func (g *client) listen(note func(string)) {
	defer close(g.done)
	t, files, err := receive(g.conn)
	for ; err == nil && t.Note != ""; t, files, err = receive(g.conn) {
		fdsock.CloseAll(files)
		note(t.Note)
	}
	fdsock.CloseAll(files)
	switch {
	case err != nil: // the keeper is gone, and with it every process
		g.st = isolate.Status{Signal: syscall.SIGKILL}
	case t.Status != nil:
		g.st, g.hit = *t.Status, t.Hit
	default:
		g.err = t.refusal()
	}
}

func (g *client) Wait(ctx context.Context) (isolate.Status, error) {
	select {
	case <-g.done:
		return g.st, g.err
	case <-ctx.Done():
		return isolate.Status{}, &errs.Error{Op: "waiting", Kind: errs.ErrInterrupted, Err: ctx.Err()}
	}
}

func (g *client) Signal(sig syscall.Signal) error {
	msg, err := json.Marshal(Request{Signal: sig})
	if err == nil {
		err = g.conn.Send(msg)
	}
	if fdsock.HungUp(err) {
		return nil // it has ended
	}
	return err
}

func (g *client) Hit() *catalog.LimitHit {
	<-g.done
	return g.hit
}

func (g *client) PTY() *os.File { return g.pty }

func (g *client) Resize(size isolate.Size) error {
	if g.pty == nil {
		return nil
	}
	return isolate.SetSize(g.pty, size)
}

func (g *client) Close() (err error) {
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

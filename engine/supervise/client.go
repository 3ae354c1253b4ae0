package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/isolate"
)

// A Process is a handle on a command in a sandbox that this process or a supervisor has started.
type Process interface {
	// Wait waits until the command has ended and returns its exit status or signal.
	Wait(ctx context.Context) (isolate.Status, error)
	// Signal sends a signal to the command.
	Signal(sig syscall.Signal) error
	// SignalGroup sends a signal to the command and to the processes that it has started in its process group, unless
	// the command has ended.
	SignalGroup(sig syscall.Signal) error
	// PTY returns the outer end of the command's terminal, or nil if it has none. The Process owns the file.
	PTY() *os.File
	// Resize sets the size of the command's terminal.
	Resize(size isolate.Size) error
	// Close frees the resources of this handle. A command that still runs gets SIGHUP.
	Close() error
}

// A Client is a handle on a command that a supervisor, another process, runs for this one.
type Client interface {
	Process
	// Hit waits until the command has ended. It returns the limit that ended the command or that it reached, or nil.
	Hit() *catalog.LimitHit
}

// Exec runs a command in a sandbox, and first starts the sandbox's supervisor if none runs. Errors: errs.ErrNotFound;
// ErrBusy, also if the supervisor does not reply; those of package isolate; ErrWall if the policy requires a
// self-test and it fails.
func (sv *Manager) Exec(ctx context.Context, name string, command isolate.Command) (Client, error) {
	return sv.ExecWith(ctx, name, command, ExecOptions{})
}

// ExecOptions say what happens before a command starts: how long it waits for free capacity of the machine,
// and whether a self-test of the isolation runs. The zero value is the behaviour of [Manager.Exec].
type ExecOptions struct {
	// Admission applies if the sandbox does not run yet.
	Admission Admission
	// Prove runs the self-test before the command, even in a running sandbox.
	Prove bool
	// detach is set by [Manager.Detach].
	detach bool
	// EndAtTTL ends the command when the sandbox reaches its ttl. Otherwise the command is paused with the
	// rest, and its Wait goes on when the ttl is increased.
	EndAtTTL bool
}

// ExecWith starts a command as [Manager.Exec] does, with options. ErrBusy: also if the host has no capacity.
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

// errUnadmitted means that the container which a command wanted to join ended before. A new one needs an admission
// slot, for which the command must wait.
var errUnadmitted = errors.New("the sandbox needs an admission slot")

// execOnce makes one attempt of ExecWith to run a command. It returns errUnadmitted if the sandbox's container ended
// meanwhile and ExecWith must wait for a slot. before is the sandbox's stop count at the time of the request: if Stop
// was called since, the command does not run.
func (sv *Manager) execOnce(ctx context.Context, name string, command isolate.Command, o ExecOptions, before int64) (Client, error) {
	var slot *admission.Slot
	when := o.Admission
	if !when.Plain() { // before the lock, so that no other command waits for both
		var err error
		if slot, err = sv.admitTo(ctx, name, when); err != nil {
			return nil, err
		}
		defer func() { sv.ReleaseSlot(slot) }() // unless the supervisor has taken it over
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
	sv.beforeExec(ctx, h, command)
	for tries := 1; ; tries++ {
		if err := sv.stoppedSince(name, before); err != nil {
			return nil, err
		}
		p, err := sv.execInSupervisor(ctx, h, command, slot, o, before)
		if errors.Is(err, errEnded) && tries < 3 {
			continue
		}
		return p, err
	}
}

// execInSupervisor sends the command to the sandbox's supervisor. If none runs, it starts one, which takes over the
// admission slot. The other parameters are those of execOnce.
func (sv *Manager) execInSupervisor(ctx context.Context, h *catalog.Locked, command isolate.Command, slot *admission.Slot, o ExecOptions, before int64) (Client, error) {
	conn, release, err := sv.dialForCommand(ctx, h.Record)
	if err == nil && conn == nil {
		if !slot.Held() && !o.Admission.Plain() {
			return nil, errUnadmitted
		}
		if err = sv.spawnSupervisor(ctx, h, slot); err == nil {
			conn, release, err = sv.dialForCommand(ctx, h.Record)
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
	p, proof, err := requestExec(ctx, conn, h.Name, command, execRequest{Prove: o.Prove, Detach: o.detach, EndAtTTL: o.EndAtTTL, Again: release != nil, Stops: &before}, sv.notice)
	if proof != nil {
		h.Proof = proof
		if serr := h.Save(); err == nil && serr != nil {
			return nil, errors.Join(serr, p.Close())
		}
	}
	if err == nil {
		p.release = release
		return p, nil
	}
	if errors.Is(err, errStopped) {
		return nil, errors.Join(sv.abandon(ctx, h, err), conn.Close())
	}
	if errors.Is(err, errEnded) || errors.Is(err, errs.ErrInterrupted) && !errors.Is(err, ErrSilent) { // its container is closed
		err = errors.Join(left, sv.Sync(ctx, h))
	}
	return nil, errors.Join(err, conn.Close())
}

// A client is a [Client]: the connection to the supervisor that runs the command. The goroutine listen receives the
// command's status and stores it here.
type client struct {
	conn *fdsock.Conn
	pty  *os.File
	done chan struct{}
	once sync.Once
	st   isolate.Status
	hit  *catalog.LimitHit
	err  error
	// whole is set if the supervisor has sent st.
	whole bool
	// release, unless it is nil, gets the connection once the command's status has come.
	release func(*fdsock.Conn)
	// detached is the ID of a detached command, or 0.
	detached int
	// closing is held while conn is sent to or closed: a send after the close would reach whatever has the number of
	// the descriptor by then. closed is set once conn is closed.
	closing sync.RWMutex
	closed  bool
}

// requestExec sends the command c with the options of w to the supervisor of the sandbox name, and returns a handle
// on the started command and the result of a requested self-test. While the command runs, note receives the
// supervisor's notices for the user. Error: also errStopped, if the sandbox was stopped since the request.
func requestExec(ctx context.Context, conn *fdsock.Conn, name string, c isolate.Command, w execRequest, note func(string)) (*client, *catalog.Proof, error) {
	w.Args, w.Env, w.Dir, w.TTY = c.Args, c.Env, c.Dir, c.TTY
	var files []*os.File
	for i, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f != nil {
			w.Streams, files = append(w.Streams, i), append(files, f)
		}
	}
	msg, err := encodeExec(&w)
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
		return nil, nil, fmt.Errorf("sending the request to the supervisor: %w", err)
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
	g := &client{conn: conn, done: make(chan struct{}), detached: t.Detached}
	if len(files) > 0 {
		g.pty = files[0]
	}
	go g.listen(note)
	return g, t.Proof, nil
}

// listen passes the supervisor's notices to note until the status of the command arrives, which it stores in g. If
// the connection ends before, the supervisor and all its processes were killed.
func (g *client) listen(note func(string)) {
	defer close(g.done)
	t, files, err := receive(g.conn)
	for ; err == nil && t.Note != ""; t, files, err = receive(g.conn) {
		fdsock.CloseAll(files)
		note(t.Note)
	}
	fdsock.CloseAll(files)
	switch {
	case err != nil: // the supervisor was killed, and every process with it
		g.st = isolate.Status{Signal: syscall.SIGKILL}
	case t.Status != nil:
		g.st, g.hit, g.whole = *t.Status, t.Hit, true
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

func (g *client) Signal(sig syscall.Signal) error { return g.signal(Request{Signal: sig}) }

func (g *client) SignalGroup(sig syscall.Signal) error {
	return g.signal(Request{Signal: sig, Group: true})
}

// signal sends a request to signal the command. It does nothing if the command has ended, or after Close.
func (g *client) signal(a Request) error {
	msg, err := exactjson.Encode(a)
	g.closing.RLock()
	defer g.closing.RUnlock()
	if err == nil && !g.closed {
		err = g.conn.Send(msg)
	}
	if fdsock.HungUp(err) {
		return nil // the command has ended
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

// replied reports whether the command's status has come.
func (g *client) replied() bool {
	select {
	case <-g.done:
		return g.whole
	default:
		return false
	}
}

func (g *client) Close() (err error) {
	g.once.Do(func() {
		reuse := g.release != nil && g.replied()
		if !reuse {
			g.conn.Shutdown() //nolint:errcheck // the supervisor may have ended
			<-g.done
		}
		g.closing.Lock()
		g.closed = true
		g.closing.Unlock()
		if reuse {
			g.release(g.conn)
		} else {
			err = g.conn.Close()
		}
		if g.pty != nil {
			err = errors.Join(err, g.pty.Close())
		}
	})
	return err
}

package supervise

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/supervise/connpool"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/proc"
)

// errEnded means that a sandbox's supervisor ended before it handled a client's request. The caller starts another
// supervisor, or needs none.
var errEnded = errors.New("the supervisor of the sandbox has just ended")

// ErrSilent means that a sandbox's supervisor runs but does not reply, for example because it is SIGSTOPped.
var ErrSilent = errors.New("the supervisor of the sandbox does not reply")

// stoppedTimeout bounds how long a client waits for the reply of a SIGSTOPped supervisor; it waits for a running one
// without a deadline.
const stoppedTimeout = time.Second

// replyPoll is how often a client that waits for a reply checks whether the supervisor is SIGSTOPped.
const replyPoll = 50 * time.Millisecond

// silentError returns the error of a client that no longer waits for the reply of the named sandbox's supervisor. Its
// kind is ErrInterrupted if ctx has ended, else ErrBusy.
func silentError(ctx context.Context, name string) error {
	err := &errs.Error{Op: "sending a request to the supervisor", Path: name, Kind: errs.ErrBusy, Err: ErrSilent, Hints: []string{"snapfs stop " + name}}
	if ctx.Err() != nil {
		err.Kind = errs.ErrInterrupted
	}
	return err
}

// Dial connects to a sandbox's supervisor; the caller closes the connection. It returns nil if none runs. Errors:
// also ErrSilent, if the socket's backlog stays full, as that of a SIGSTOPped supervisor does.
func (sv *Manager) Dial(ctx context.Context, rec *catalog.Record) (*fdsock.Conn, error) {
	for began := time.Now(); ; poll.Sleep(ctx, replyPoll) {
		conn, err := fdsock.Dial(sv.socket(rec.Name))
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
			return nil, nil //nolint:nilnil // none runs
		case !errors.Is(err, syscall.EAGAIN):
			return nil, errs.With("entering", rec.Name, err)
		case ctx.Err() != nil, time.Since(began) > stoppedTimeout:
			return nil, silentError(ctx, rec.Name)
		}
	}
}

// dialForCommand connects to a sandbox's supervisor as Dial does, or returns an idle connection to it. Unless release
// is nil, the caller passes the connection to it after the command instead of closing it.
func (sv *Manager) dialForCommand(ctx context.Context, rec *catalog.Record) (conn *fdsock.Conn, release func(*fdsock.Conn), err error) {
	if sv.connections == nil {
		conn, err = sv.Dial(ctx, rec)
		return conn, nil, err
	}
	socket, err := connpool.At(sv.socket(rec.Name)) // before Dial: if the socket is replaced meanwhile, the connection is not reused
	if err != nil {
		conn, err = sv.Dial(ctx, rec)
		return conn, nil, err
	}
	release = func(conn *fdsock.Conn) { sv.connections.Put(socket, conn) }
	if conn = sv.connections.Take(socket); conn != nil {
		return conn, release, nil
	}
	conn, err = sv.Dial(ctx, rec)
	return conn, release, err
}

// awaitReply waits until the supervisor of the named sandbox has sent a reply on conn or has ended. Error: ErrSilent
// if ctx ends first, or if the supervisor is SIGSTOPped for longer than stoppedTimeout.
func awaitReply(ctx context.Context, conn *fdsock.Conn, name string) error {
	var stopped time.Time
	for {
		if ready, err := conn.Await(replyPoll); ready || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return silentError(ctx, name)
		}
		supervisor, err := conn.Peer()
		switch now := time.Now(); {
		case err != nil || !proc.Stopped(supervisor):
			stopped = time.Time{}
		case stopped.IsZero():
			stopped = now
		case now.Sub(stopped) > stoppedTimeout:
			return silentError(ctx, name)
		}
	}
}

// receiveWithin waits for the reply of the named sandbox's supervisor, as awaitReply does, and returns it with the
// files sent along. Errors: errEnded, ErrSilent.
func receiveWithin(ctx context.Context, conn *fdsock.Conn, name string) (Reply, []*os.File, error) {
	if err := awaitReply(ctx, conn, name); err != nil {
		return Reply{}, nil, err
	}
	return receive(conn)
}

// receive waits for a supervisor's next reply on conn, without a deadline, and returns it with the files sent along,
// which the caller closes. Error: errEnded.
func receive(conn *fdsock.Conn) (Reply, []*os.File, error) {
	var t Reply
	msg, files, err := conn.Receive()
	if errors.Is(err, io.EOF) || fdsock.HungUp(err) {
		return t, nil, &errs.Error{Op: "waiting for the supervisor's reply", Kind: errs.ErrInterrupted, Err: errEnded}
	}
	if err != nil {
		return t, nil, errs.With("waiting for the supervisor's reply", "", err)
	}
	switch string(msg) {
	case frozenText:
		t.Frozen = true
	case startedText:
		t.Started = true
	default:
		err = exactjson.Decode(msg, &t)
	}
	return t, files, err
}

// request sends one request to a sandbox's supervisor and returns the reply, or nil if no supervisor runs. Errors:
// also ErrSilent, after which the supervisor may still carry out the request.
func (sv *Manager) request(ctx context.Context, rec *catalog.Record, a Request) (*Reply, error) {
	conn, err := sv.Dial(ctx, rec)
	if err != nil || conn == nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // the reply is complete
	msg, err := exactjson.Encode(a)
	if err == nil {
		err = conn.Send(msg)
	}
	if fdsock.HungUp(err) {
		return nil, nil //nolint:nilnil // the supervisor has just ended
	}
	if err != nil {
		return nil, err
	}
	t, files, err := receiveWithin(ctx, conn, rec.Name)
	fdsock.CloseAll(files)
	if errors.Is(err, errEnded) {
		return nil, nil //nolint:nilnil // the supervisor has just ended
	}
	if err != nil {
		return nil, err
	}
	if t.Refused != nil {
		return nil, t.refusal()
	}
	return &t, nil
}

// RequestEnd sends the request a to end the sandbox to its supervisor: with Stop always, with Leave only if
// nothing runs inside. It reports whether nothing runs in the sandbox now. For Stop it also wakes a
// SIGSTOPped supervisor and kills one that takes longer than stopTimeout.
func (sv *Manager) RequestEnd(ctx context.Context, rec *catalog.Record, a Request) (bool, error) {
	conn, err := sv.Dial(ctx, rec)
	if err != nil || conn == nil {
		return err == nil, err
	}
	if supervisor, err := conn.Peer(); err == nil && a.Stop {
		defer escalate(supervisor)()
	}
	msg, err := exactjson.Encode(a)
	if err == nil {
		if err = conn.Send(msg); fdsock.HungUp(err) {
			return true, conn.Close()
		}
	}
	var t Reply
	if err == nil {
		t, _, err = receiveWithin(ctx, conn, rec.Name)
	}
	if errors.Is(err, errEnded) { // before it could reply
		t.Ended, err = true, nil
	}
	return t.Ended, errors.Join(err, conn.Close())
}

// stopTimeout is how long a supervisor may take to end its sandbox, including a sync of all data, before it is killed.
const stopTimeout = 30 * time.Second

// escalate makes sure that a supervisor which was requested to stop ends: it wakes a SIGSTOPped one with SIGCONT, and
// kills it after stopTimeout. By calling enough, the caller prevents the kill; false means too late.
func escalate(supervisor proc.Process) (enough func() bool) {
	if proc.Stopped(supervisor) {
		syscall.Kill(supervisor.PID, syscall.SIGCONT) //nolint:errcheck // it may have ended
	}
	return time.AfterFunc(stopTimeout, func() {
		if proc.Alive(supervisor) {
			syscall.Kill(supervisor.PID, syscall.SIGKILL) //nolint:errcheck // it may have ended
		}
	}).Stop
}

package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/proc"
)

// errLeft: the keeper ended before it could do what it was asked for.
var errEnded = errors.New("its keeper has just ended")

// ErrSilent: the keeper is there and does not answer.
var ErrSilent = errors.New("its keeper does not answer")

// silence is how long a keeper may stand still before nobody waits for it any more. One
// that goes on may take as long as it needs.
const stoppedTimeout = time.Second

// glance is how often one who waits for a keeper looks whether to wait on.
const replyPoll = 50 * time.Millisecond

// silentError is the error of one who waits for a keeper no longer.
func silentError(ctx context.Context, name string) error {
	err := &errs.Error{Op: "asking the keeper", Path: name, Kind: errs.ErrBusy, Err: ErrSilent, Hints: []string{"snapfs stop " + name}}
	if ctx.Err() != nil {
		err.Kind = errs.ErrInterrupted
	}
	return err
}

// Dial connects to a sandbox's keeper, nil where none runs. Errors: also errSilent, where
// more wait for it already than can, as before one that was stopped.
func (sv *Manager) Dial(ctx context.Context, rec *catalog.Record) (*fdsock.Conn, error) {
	for began := time.Now(); ; pause(ctx, replyPoll) {
		conn, err := fdsock.Dial(sv.socket(rec.Name))
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
			return nil, nil //nolint:nilnil // none runs
		case !errors.Is(err, syscall.EAGAIN):
			return nil, &errs.Error{Op: "entering", Path: rec.Name, Kind: errs.KindOf(err), Err: err}
		case ctx.Err() != nil, time.Since(began) > stoppedTimeout:
			return nil, silentError(ctx, rec.Name)
		}
	}
}

// awaitReply waits until the keeper of a sandbox has answered, or ended: not longer than ctx
// lasts, nor for one that stands still. Error: errSilent.
func awaitReply(ctx context.Context, conn *fdsock.Conn, name string) error {
	var still time.Time
	for {
		if ready, err := conn.Await(replyPoll); ready || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return silentError(ctx, name)
		}
		keeper, err := conn.Peer()
		switch now := time.Now(); {
		case err != nil || !proc.Stopped(keeper):
			still = time.Time{}
		case still.IsZero():
			still = now
		case now.Sub(still) > stoppedTimeout:
			return silentError(ctx, name)
		}
	}
}

// receiveWithin is hear as await waits. Errors: errLeft, errSilent.
func receiveWithin(ctx context.Context, conn *fdsock.Conn, name string) (reply, []*os.File, error) {
	if err := awaitReply(ctx, conn, name); err != nil {
		return reply{}, nil, err
	}
	return receive(conn)
}

// receive waits for what the keeper has to say, however long. Error: errLeft.
func receive(conn *fdsock.Conn) (reply, []*os.File, error) {
	var t reply
	msg, files, err := conn.Receive()
	if errors.Is(err, io.EOF) || fdsock.HungUp(err) {
		return t, nil, &errs.Error{Op: "hearing from the keeper", Kind: errs.ErrInterrupted, Err: errEnded}
	}
	if err != nil {
		return t, nil, &errs.Error{Op: "hearing from the keeper", Kind: errs.KindOf(err), Err: err}
	}
	return t, files, json.Unmarshal(msg, &t)
}

// request asks a sandbox's keeper one thing; nil where there is none. Errors: also
// errSilent, after which it may be done all the same.
func (sv *Manager) request(ctx context.Context, rec *catalog.Record, a Request) (*reply, error) {
	conn, err := sv.Dial(ctx, rec)
	if err != nil || conn == nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // all was heard
	msg, err := json.Marshal(a)
	if err == nil {
		err = conn.Send(msg)
	}
	if fdsock.HungUp(err) {
		return nil, nil //nolint:nilnil // it has just ended
	}
	if err != nil {
		return nil, err
	}
	t, files, err := receiveWithin(ctx, conn, rec.Name)
	fdsock.CloseAll(files)
	if errors.Is(err, errEnded) {
		return nil, nil //nolint:nilnil // it has just ended
	}
	if err != nil {
		return nil, err
	}
	if t.Refused != nil {
		return nil, t.refusal()
	}
	return &t, nil
}

// RequestEnd asks a sandbox's keeper to end it, and reports whether nothing runs
// in it now. Where it is to end whatever runs, a keeper is made to.
func (sv *Manager) RequestEnd(ctx context.Context, rec *catalog.Record, a Request) (bool, error) {
	conn, err := sv.Dial(ctx, rec)
	if err != nil || conn == nil {
		return err == nil, err
	}
	if keeper, err := conn.Peer(); err == nil && a.Stop {
		defer escalate(keeper)()
	}
	msg, err := json.Marshal(a)
	if err == nil {
		if err = conn.Send(msg); fdsock.HungUp(err) {
			return true, conn.Close()
		}
	}
	var t reply
	if err == nil {
		t, _, err = receiveWithin(ctx, conn, rec.Name)
	}
	if errors.Is(err, errEnded) { // before it could answer
		t.Ended, err = true, nil
	}
	return t.Ended, errors.Join(err, conn.Close())
}

// stopping is how long a keeper may take to end a sandbox before it is killed:
// as long as writing everything out may take.
const stopTimeout = 30 * time.Second

// escalate has a keeper that was stopped go on, so that it can end its sandbox, and kills
// one that takes too long, until the answer is called.
func escalate(keeper proc.Process) (enough func() bool) {
	if proc.Stopped(keeper) {
		syscall.Kill(keeper.PID, syscall.SIGCONT) //nolint:errcheck // it may have ended meanwhile
	}
	return time.AfterFunc(stopTimeout, func() {
		if proc.Alive(keeper) {
			syscall.Kill(keeper.PID, syscall.SIGKILL) //nolint:errcheck // it may have ended meanwhile
		}
	}).Stop
}

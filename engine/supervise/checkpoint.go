package supervise

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
	"golang.org/x/sys/unix"
)

// ErrSlow means that the last checkpoint of a sandbox in use took long, so that the next one is better taken while
// nothing runs in the sandbox, which takes constant time.
var ErrSlow = errors.New("the last checkpoint of the running sandbox took long")

// slowCheckpoint is how much processor time a checkpoint of a sandbox in use may take before the supervisor refuses the
// next one. On overlay a snapshot of a sandbox in use copies everything that has changed since the last snapshot of the
// idle sandbox. The elapsed time says less: on a busy machine each snapshot takes long, and one of an idle sandbox,
// which starts the sandbox again, much longer.
const slowCheckpoint = 60 * time.Millisecond

// HandOver has the supervisor of a locked sandbox take the named snapshot mark, and returns once the sandbox's processes
// are frozen: the snapshot shows the files as they are then. The supervisor has the sandbox's lock until the snapshot is
// taken, also after the caller has released it. A failure after HandOver has returned is reported by the next command
// that takes the lock. If the supervisor is killed, that command takes the snapshot: its processes have ended, so that
// the files are the same.
//
// taken waits until the supervisor has released the lock, or was killed. The caller calls it once, after releasing the
// lock itself. taken is nil if the caller must take the snapshot: no supervisor runs, or one of an older snapfs.
// Errors: also ErrSlow; then no snapshot is taken. The next call is not refused for that reason.
func (sv *Manager) HandOver(ctx context.Context, h *catalog.Locked, mark string) (taken func(), err error) {
	conn, err := sv.Dial(ctx, h.Record)
	if err != nil || conn == nil {
		return nil, err
	}
	defer func() {
		if taken == nil {
			conn.Close() //nolint:errcheck // the reply is complete
		}
	}()
	msg := []byte(checkpointBegin + mark + checkpointEnd)
	if !exactjson.IsPlain(mark) {
		msg, err = exactjson.Encode(Request{Checkpoint: mark})
	}
	if err == nil {
		err = conn.Send(msg, h.LockFile())
	}
	if fdsock.HungUp(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, files, err := receiveWithin(ctx, conn, h.Name)
	fdsock.CloseAll(files)
	switch {
	case errors.Is(err, errEnded):
		return nil, nil
	case err == nil && t.Slow:
		err = ErrSlow
	}
	if err != nil || !t.Frozen {
		return nil, err
	}
	name := h.Name
	return func() {
		_, files, _ := receiveWithin(ctx, conn, name) // the end of the connection counts, too
		fdsock.CloseAll(files)
		conn.Close() //nolint:errcheck // nothing more comes
	}, nil
}

// checkpoint takes the named snapshot mark for a client that has handed over the sandbox's lock, and replies as soon as
// the processes are frozen, and again when it has released the lock. lock is the client's open file of the lock;
// checkpoint may close it, else the caller does.
func (sv *Manager) checkpoint(rec *catalog.Record, h *Supervisor, client *fdsock.Conn, mark string, lock *os.File) {
	if h.slow.Swap(false) {
		send(client, Reply{Slow: true})
		return
	}
	refuse := func(err error) { send(client, Reply{Refused: refusalOf(err), Gone: errors.Is(err, errs.ErrClosed)}) }
	own, err := unix.FcntlInt(lock.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		refuse(err)
		return
	}
	lock.Close() // own alone has the lock now
	held, err := sv.cat.Inherit(own, rec.Name)
	if err != nil {
		unix.Close(own)
		refuse(err)
		return
	}
	defer held.Release()
	thaw, err := h.freezeNow()
	if err != nil {
		refuse(err)
		return
	}
	defer thaw()
	if err := sv.keyPoints.Promise(held.Name, mark); err != nil {
		refuse(err)
		return
	}
	send(client, Reply{Frozen: true}) // it may have gone
	ctx, before := context.Background(), processorTime()
	sv.keyPoints.TakePromised(ctx, held, sv.sealFrozen(thaw), mark)
	h.slow.Store(processorTime()-before > slowCheckpoint)
	thaw()
	held.Release()
	send(client, Reply{}) // the client may have gone
	sv.baseline.RecordOrdered(ctx, held.Record)
}

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with a valid pointer
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

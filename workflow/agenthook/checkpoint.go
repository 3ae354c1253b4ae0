package agenthook

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// firstCheckpoint is the name of the snapshot of a sandbox before the first call.
const firstCheckpoint = "before-agent"

// The bounds of checkpoints: when there are more than most, the oldest go until keep are left.
const (
	mostCheckpoints = 60
	keepCheckpoints = 50
)

// checkpoint takes a named snapshot after a call and adds it to the lease. A call that has one already is no error.
func checkpoint(ctx context.Context, e *engine.Engine, l *Lease, call Checkpoint) error {
	call.Name = snapshotName(call.Call)
	call.Time = time.Now()
	slow, err := l.snapshot(ctx, e, call.Name)
	if errors.Is(err, errs.ErrExists) {
		return nil // the agent sent the same event twice
	}
	if err != nil {
		return err
	}
	var old []string
	err = l.update(ctx, e, func(l *Lease) {
		l.Slow, l.Checkpoints = slow, append(l.Checkpoints, call)
		if len(l.Checkpoints) <= mostCheckpoints {
			return
		}
		for _, c := range l.Checkpoints[:len(l.Checkpoints)-keepCheckpoints] {
			old = append(old, c.Name)
		}
		l.Checkpoints = l.Checkpoints[len(old):]
	})
	if err != nil || len(old) == 0 {
		return err
	}
	return e.DropSnapshots(ctx, l.Sandbox, old)
}

// slowSnapshot is the time from which a snapshot of a sandbox in use has copied much: an overlay copies all that has
// changed since the last snapshot of an idle sandbox.
const slowSnapshot = 60 * time.Millisecond

// snapshot takes a named snapshot, and reports whether that was slow. After a slow one, the next is taken while the
// sandbox is idle for a moment, which takes constant time and leaves little to copy for those that follow.
func (l *Lease) snapshot(ctx context.Context, e *engine.Engine, name string) (slow bool, err error) {
	if !l.Slow {
		begin := time.Now()
		_, err := e.Snapshot(ctx, l.Sandbox, name)
		return time.Since(begin) > slowSnapshot, err
	}
	return false, withoutView(ctx, e, l, func() error {
		if err := awaitIdle(ctx, e, l.Sandbox); err != nil {
			return err
		}
		_, err := e.Snapshot(ctx, l.Sandbox, name)
		return err
	})
}

// awaitIdle ends a sandbox in which nothing runs but what is about to end. If other processes run on, it returns nil.
func awaitIdle(ctx context.Context, e *engine.Engine, sandbox string) error {
	const patience = 100 * time.Millisecond
	h, err := holdIdle(ctx, e, sandbox, "naming a state of", patience)
	if err == nil {
		h.Release()
	}
	if errors.Is(err, errs.ErrBusy) {
		return nil
	}
	return err
}

// holdIdle locks a sandbox in which nothing runs, for the operation op, and waits at most for patience for what is about
// to end there. The caller releases it. Errors: errs.ErrBusy if other processes run on.
func holdIdle(ctx context.Context, e *engine.Engine, sandbox, op string, patience time.Duration) (*catalog.Locked, error) {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		h, err := e.Supervise.Hold(ctx, sandbox, op)
		if err != nil {
			return nil, err
		}
		if err = e.Supervise.MustBeIdle(ctx, h, op); err == nil {
			return h, nil
		}
		h.Release()
		if !errors.Is(err, errs.ErrBusy) || time.Now().After(end) {
			return nil, err
		}
	}
}

// snapshotName makes the name of a snapshot from the id of a call, which an agent chooses.
func snapshotName(call string) string {
	name := cleanName(call)
	if catalog.CheckName(name) != nil {
		return firstCheckpoint
	}
	return name
}

// cleanName replaces what cannot be in the name of a sandbox or snapshot, and shortens it.
func cleanName(s string) string {
	const most = 48 // leaves room for a number
	s = strings.Map(func(r rune) rune {
		if r < 128 && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '_' || r == '-') {
			return r
		}
		return '-'
	}, s)
	s = strings.TrimLeft(s, "._-")
	return s[:min(len(s), most)]
}

// A Back says how far [Undo] goes back.
type Back int

// What Undo takes back.
const (
	// LastCall is the last call of a tool that left a checkpoint.
	LastCall Back = iota
	// LastTurn is every call since the last prompt.
	LastTurn
)

// Undo returns a sandbox to its checkpoint before the last call or turn of its agent, and returns that checkpoint's
// name. Those after it leave the lease, so that the next Undo goes further back; their snapshots stay. The agent's
// file tools see the restored files at once. Errors: errs.ErrNotFound if no agent works in the sandbox or nothing is
// left to undo; errs.ErrBusy while other processes run in it.
func Undo(ctx context.Context, e *engine.Engine, sandbox string, back Back) (string, error) {
	l, err := readLease(e.StateDir(), sandbox)
	if err != nil {
		if errors.Is(err, errs.ErrNotFound) {
			err = errs.New("undoing", sandbox, errs.ErrNotFound, "no agent has worked in this sandbox", "snapfs show "+sandbox)
		}
		return "", err
	}
	n := before(l.Checkpoints, back)
	if n == 0 {
		return "", errs.New("undoing", sandbox, errs.ErrNotFound, "the agent has called no tool that could be undone", "snapfs rollback "+sandbox)
	}
	to := l.Checkpoints[n-1].Name
	if err := Rollback(ctx, e, sandbox, to); err != nil {
		return "", err
	}
	return to, l.update(ctx, e, func(l *Lease) { l.Checkpoints = l.Checkpoints[:min(n, len(l.Checkpoints))] })
}

// before returns how many checkpoints stay after an undo: 0 if there is nothing to undo.
func before(all []Checkpoint, back Back) int {
	n := len(all) - 1
	if n <= 0 {
		return 0
	}
	if back == LastTurn {
		for turn := all[n].Turn; n > 1 && all[n-1].Turn == turn && turn != ""; {
			n--
		}
	}
	return n
}

// Rollback does the same as [engine.Engine.Rollback], also while an agent uses a view of the sandbox.
func Rollback(ctx context.Context, e *engine.Engine, sandbox, mark string) error {
	l, err := LeaseOf(e, sandbox)
	if err != nil || l == nil {
		return errors.Join(err, e.Rollback(ctx, sandbox, mark))
	}
	return withoutView(ctx, e, l, func() error { return e.Rollback(ctx, sandbox, mark) })
}

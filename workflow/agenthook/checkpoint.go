package agenthook

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/view"
)

// firstCheckpoint is the name of the snapshot of an agent's sandbox before the agent's first call of a tool.
const firstCheckpoint = "before-agent"

// Bounds of the checkpoints (snapshots after an agent's calls) of one sandbox: when there are more than
// mostCheckpoints, the oldest are removed until keepCheckpoints are left: many at once, since that waits for the disk.
const (
	mostCheckpoints = 90
	keepCheckpoints = 50
)

// checkpoint takes a named snapshot of an agent's sandbox after call, a call of a tool, and adds it to the
// lease l, which ties the sandbox to the agent, for a later undo. A call that has a snapshot already is no
// error.
func checkpoint(ctx context.Context, e *engine.Engine, l *Lease, call Checkpoint) error {
	call.Name = snapshotName(call.Call)
	call.Time = time.Now()
	var old []string
	err := l.snapshot(ctx, e, call.Name, func() error {
		return l.updateLocked(e, func(l *Lease) {
			l.Checkpoints = append(l.Checkpoints, call)
			if len(l.Checkpoints) <= mostCheckpoints {
				return
			}
			for _, c := range l.Checkpoints[:len(l.Checkpoints)-keepCheckpoints] {
				old = append(old, c.Name)
			}
			l.Checkpoints = l.Checkpoints[len(old):]
		})
	})
	if errors.Is(err, errs.ErrExists) {
		return nil // the agent sent the same event twice
	}
	if err != nil || len(old) == 0 {
		return err
	}
	return e.DropSnapshots(ctx, l.Sandbox, old)
}

// snapshot takes a snapshot called name of the agent's sandbox, and calls listed under the sandbox's lock. It returns
// when the snapshot is taken: nothing freezes the agent's file tools meanwhile, which write to the view from outside.
//
// After a snapshot that took long, snapshot takes the next while the sandbox is idle for a moment. That takes constant
// time and leaves little to copy for those that follow.
func (l *Lease) snapshot(ctx context.Context, e *engine.Engine, name string, listed func() error) error {
	take := func() error {
		taken, err := e.Checkpoint(ctx, l.Sandbox, name, listed)
		if taken != nil {
			taken()
		}
		if err != nil {
			return err
		}
		h, err := e.Supervise.Hold(ctx, l.Sandbox, "naming a state of") // takes the snapshot if the supervisor was killed
		if err != nil {
			return err
		}
		h.Release()
		return nil
	}
	if err := take(); !errors.Is(err, supervise.ErrSlow) {
		return err
	}
	return view.Without(ctx, e, l.view(), func() error {
		if err := awaitIdle(ctx, e, l.Sandbox); err != nil {
			return err
		}
		return take()
	})
}

// awaitIdle waits a moment until the processes of an agent's sandbox that are about to end have ended, and
// then stops the sandbox. If other processes continue to run, it returns nil.
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

// holdIdle locks a sandbox in which nothing runs, for the operation op. It waits at most for patience until
// processes that are about to end have ended. The caller releases the lock. Errors: errs.ErrBusy if other
// processes continue to run.
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

// snapshotName returns the name of the snapshot taken after a call of a tool, made from the call's id, which
// the agent chooses.
func snapshotName(call string) string {
	name := cleanName(call)
	if catalog.CheckName(name) != nil {
		return firstCheckpoint
	}
	return name
}

// cleanName returns s, an id that a coding agent chose, as a name for a sandbox or snapshot: it replaces
// characters that are not allowed, and shortens it.
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

// A Back says how much of a coding agent's work [Undo] undoes: the last call of a tool, or all since the last
// prompt.
type Back int

// The values of Back: how far an undo of an agent's work goes back.
const (
	// LastCall undoes the agent's last call of a tool after which a checkpoint, an automatic snapshot, was
	// taken.
	LastCall Back = iota
	// LastTurn undoes every call of a tool that the coding agent made since the person's last prompt.
	LastTurn
)

// Undo rolls a sandbox back to its checkpoint (snapshot) before the last call or turn of its coding agent,
// and returns that checkpoint's name. Later checkpoints are removed from the lease, the file that lists them,
// so that the next Undo goes further back; their snapshots stay. The agent's file tools see the restored
// files at once. Errors: errs.ErrNotFound if no agent works in the sandbox or nothing is left to undo;
// errs.ErrBusy while other processes run in it.
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

// before returns how many of the checkpoints all, snapshots after an agent's calls, remain after an undo as
// far as back says: 0 if there is nothing to undo.
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

// Rollback rolls a sandbox back as [engine.Engine.Rollback] does, also while an agent or a person uses a view
// of the sandbox. mark names a snapshot, "" the base.
func Rollback(ctx context.Context, e *engine.Engine, sandbox, mark string) error {
	v, err := view.Of(e, sandbox)
	if err != nil {
		return err
	}
	return view.Without(ctx, e, v, func() error { return e.Rollback(ctx, sandbox, mark) })
}

package engine

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/units"
)

// A run leaves its sandbox for a while although nobody asked to keep it. Such an unclaimed sandbox is removed
// after UnclaimedFor, and earlier if there are more than MaxUnclaimed of them, or if together they store more
// than MaxUnclaimedSize. The newest one stays.
const (
	UnclaimedFor     = 24 * time.Hour
	MaxUnclaimed     = 20
	MaxUnclaimedSize = snapshot.Bytes(4 << 30)
)

// KeepRun makes the session's sandbox permanent because a person asked for it. Its catalogue entry then says
// that a snapfs run made it. After an error the caller must still end the session.
func (s *Session) KeepRun(ctx context.Context) error {
	s.Record.Run = &catalog.KeptRun{Ended: time.Now()}
	return s.Keep(ctx, "")
}

// KeepUnclaimed makes the session's sandbox permanent although nobody asked for that, so that a result is not
// lost. The sandbox gets the limit remove-after unless the user set one, and a generated name unless named is
// set. KeepUnclaimed then removes the oldest unclaimed sandboxes beyond the bounds. It returns the time at
// which the sandbox will be removed. After an error the caller must still end the session.
func (s *Session) KeepUnclaimed(ctx context.Context, named bool) (time.Time, error) {
	e, now := s.Engine, catalog.Now()
	run, l, age := &catalog.KeptRun{Ended: now.Wall, Unclaimed: true}, &s.Record.Policy.Limits, s.Record.AgeAt(now)
	if l.RemoveAfter == 0 {
		l.RemoveAfter = max(UnclaimedFor, UnclaimedFor+(age-l.TTL).Truncate(time.Minute))
		run.RemoveAfter = l.RemoveAfter
	}
	if size, err := e.usage(ctx, s.Record); err == nil && size > 0 {
		run.Size = int64(size)
	}
	s.Record.Run = run
	name := ""
	if !named {
		name = catalog.NameFor(s.Record.Workspace, s.Record.ID)
	}
	err := s.Keep(ctx, name)
	if err == nil {
		e.pruneUnclaimed(ctx)
	}
	return now.Wall.Add(l.RemovalAge() - age), err
}

// pruneUnclaimed removes the oldest unclaimed sandboxes (runs left them, and nobody asked to keep them)
// beyond MaxUnclaimed and MaxUnclaimedSize. It reports as notices those that it cannot remove.
func (e *Engine) pruneUnclaimed(ctx context.Context) {
	records, _ := e.cat.List() // one that cannot be read stays
	records = slices.DeleteFunc(records, func(r *catalog.Record) bool { return r.Run == nil || !r.Run.Unclaimed })
	slices.SortFunc(records, func(a, b *catalog.Record) int { return b.Run.Ended.Compare(a.Run.Ended) })
	size := snapshot.Bytes(0)
	for i, r := range records {
		size += snapshot.Bytes(r.Run.Size)
		if i == 0 || i < MaxUnclaimed && size <= MaxUnclaimedSize {
			continue
		}
		if err := e.pruneOne(ctx, r); err != nil {
			e.notice(r.Name + " is unclaimed, and not removed yet: " + err.Error())
		}
	}
}

// pruneOne removes the unclaimed sandbox r, unless it is in use or somebody has claimed it since r was read.
func (e *Engine) pruneOne(ctx context.Context, r *catalog.Record) error {
	h, err := e.cat.TryLock(r.Name)
	if errors.Is(err, errs.ErrBusy) || errors.Is(err, errs.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Release()
	if h.ID != r.ID || !h.Run.Unclaimed || h.Supervisor != nil && proc.Alive(*h.Supervisor) {
		return nil
	}
	if wait, err := e.needsPromotion(h.Record); wait || err != nil {
		return err
	}
	if err := e.Supervise.Sync(ctx, h); err != nil {
		return err
	}
	if err := e.Sandboxes.Remove(ctx, h); err != nil {
		return err
	}
	e.notice(r.Name + " is removed: it is not among the newest " + strconv.Itoa(MaxUnclaimed) + " unclaimed sandboxes of at most " + units.FormatSize(int64(MaxUnclaimedSize)) + " together")
	return nil
}

// Claim makes an unclaimed sandbox that a run left permanent: it removes the limit remove-after that the run
// set. It returns the sandbox's limits. Safe to repeat. Errors: errs.ErrNotFound, ErrBusy.
func (e *Engine) Claim(ctx context.Context, name string) (Limits, error) {
	h, err := e.Supervise.Hold(ctx, name, "keeping")
	if err != nil {
		return Limits{}, err
	}
	defer h.Release()
	own := h.OwnRemoval()
	if h.Run != nil && h.Run.Unclaimed {
		h.Run.Unclaimed = false
		if err := h.Save(); err != nil {
			return Limits{}, err
		}
	}
	if !own {
		return h.Policy.Limits, nil
	}
	h.Release()
	return e.Supervise.SetLimits(ctx, name, func(l *Limits) error {
		l.RemoveAfter, l.KeepEnd = 0, false
		return nil
	})
}

// LastRun returns the name of the sandbox that the latest snapfs run in one of the workspaces left. Errors:
// errs.ErrNotFound if there is none.
func (e *Engine) LastRun(workspaces ...string) (string, error) {
	records, failures := e.cat.List()
	var last *catalog.Record
	for _, r := range records {
		if r.Run != nil && !e.removing[r.ID] && slices.Contains(workspaces, r.Workspace) && (last == nil || r.Run.Ended.After(last.Run.Ended)) {
			last = r
		}
	}
	if last != nil {
		return last.Name, nil
	}
	failures = append(failures, &errs.Error{
		Op: "looking for the last run", Path: workspaces[0], Kind: errs.ErrNotFound,
		Err: errors.New("no run of this workspace has left a sandbox"), Hints: []string{"snapfs ls"},
	})
	return "", errors.Join(failures...)
}

package race

import (
	"context"
	"errors"
	"slices"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/reconcile"
)

// Changes compares an attempt's sandbox with the base. The caller closes them.
func (r *Race) Changes(ctx context.Context, number int) (*compare.Changes, error) {
	return r.sessions[number-1].Changes(ctx)
}

// Keep makes the sandbox of an attempt one that stays, and answers with its name.
// Repeating it is harmless. After an error it is still the race's. On a live base,
// those that are to be merged after another one are kept before that is promoted:
// what the base held is kept along.
func (r *Race) Keep(ctx context.Context, number int) (string, error) {
	a, s := &r.Attempts[number-1], r.sessions[number-1]
	if a.Kept {
		return a.Sandbox, nil
	}
	err := r.e.engine.Sandboxes.Tidy(ctx, s.Record) // what was put by while it was checked
	if err == nil {
		err = s.Keep(ctx, "")
	}
	a.Kept = err == nil
	return a.Sandbox, err
}

// Promote merges what an attempt changed in the workspace into the real tree, as any
// other sandbox's. The sandbox is kept first, so that nothing is lost where that is
// refused, or this process is killed, and stays; see [Race.Remove].
// Errors: those of [Engine.Promote].
func (r *Race) Promote(ctx context.Context, number int) (reconcile.Promoted, error) {
	name, err := r.Keep(ctx, number)
	if err != nil {
		return reconcile.Promoted{}, err
	}
	return r.e.engine.Reconcile.Promote(ctx, name, reconcile.PromoteOptions{})
}

// Remove removes the sandbox of an attempt that was kept.
func (r *Race) Remove(ctx context.Context, number int) error {
	a := &r.Attempts[number-1]
	err := r.e.engine.Remove(ctx, a.Sandbox)
	if err == nil {
		a.Kept = false
	}
	return err
}

// Close removes every sandbox that was not kept. Repeating it is harmless.
func (r *Race) Close(ctx context.Context) error {
	var rest []*engine.Session
	for i, s := range r.sessions {
		if i >= len(r.Attempts) || !r.Attempts[i].Kept {
			rest = append(rest, s)
		}
	}
	return r.e.discardAll(ctx, rest)
}

// discardAll takes the sandboxes of sessions away: the names of all, and then the
// trees, so that there is one collection of what they shared. Those that are nil,
// or gone, are passed over.
func (rr *Coordinator) discardAll(ctx context.Context, sessions []*engine.Session) error {
	sessions = slices.DeleteFunc(slices.Clone(sessions), func(s *engine.Session) bool { return s == nil })
	var errs []error
	for _, s := range sessions {
		errs = append(errs, s.End(ctx))
		h, err := rr.cat.TryLock(s.Record.Name)
		if err != nil {
			continue // gone, or somebody mends it: the last step says so
		}
		if h.ID == s.Record.ID {
			errs = append(errs, h.Discard())
		} else {
			h.Release()
		}
	}
	for _, s := range sessions {
		err := rr.engine.Sandboxes.Discard(ctx, s.Record)
		rr.engine.Sandboxes.EndIfGone(s.Intent, s.Record, err)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

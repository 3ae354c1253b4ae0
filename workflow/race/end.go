package race

import (
	"context"
	"errors"
	"slices"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/reconcile"
)

// Changes returns the changes that the race's attempt with this number made since the base that all attempts
// started from. The caller closes them.
func (r *Race) Changes(ctx context.Context, number int) (*compare.Changes, error) {
	s := r.sessions[number-1]
	return s.Engine.Compare.Changes(ctx, s.Record)
}

// Keep makes the sandbox of the race's attempt with this number permanent and returns its name. It may be
// repeated; after an error [Race.Close] still removes the sandbox. On a live base, keep every sandbox that
// will be merged later before promoting the first one, because Keep stores the present real files as the
// baseline of the merge.
func (r *Race) Keep(ctx context.Context, number int) (string, error) {
	a, s := &r.Attempts[number-1], r.sessions[number-1]
	if a.Kept {
		return a.Sandbox, nil
	}
	err := r.e.engine.Sandboxes.Tidy(ctx, s.Record) // snapshots taken for the check
	if err == nil {
		err = s.Keep(ctx, "")
	}
	a.Kept = err == nil
	return a.Sandbox, err
}

// Promote merges the changes that the attempt with this number made in the workspace into the real tree. It
// makes the sandbox permanent first and leaves it in place, so that nothing is lost if the promotion is
// refused or this process is killed; see [Race.Remove]. Errors: those of [reconcile.Reconciler.Promote].
func (r *Race) Promote(ctx context.Context, number int) (reconcile.Promoted, error) {
	name, err := r.Keep(ctx, number)
	if err != nil {
		return reconcile.Promoted{}, err
	}
	return r.e.engine.Reconcile.Promote(ctx, name, reconcile.PromoteOptions{})
}

// Remove removes the sandbox of the race's attempt with this number, which [Race.Keep] made permanent.
func (r *Race) Remove(ctx context.Context, number int) error {
	a := &r.Attempts[number-1]
	err := r.e.engine.Remove(ctx, a.Sandbox)
	if err == nil {
		a.Kept = false
	}
	return err
}

// Close removes every sandbox of the race's attempts that was not made permanent. It may be repeated.
func (r *Race) Close(ctx context.Context) error {
	var rest []*engine.Session
	for i, s := range r.sessions {
		if i >= len(r.Attempts) || !r.Attempts[i].Kept {
			rest = append(rest, s)
		}
	}
	return r.e.discardAll(ctx, rest)
}

// discardAll removes the sandboxes of sessions: first all names, then the trees, so that one garbage
// collection frees shared data. It skips nil sessions and sandboxes that do not exist any more.
func (rr *Coordinator) discardAll(ctx context.Context, sessions []*engine.Session) error {
	sessions = slices.DeleteFunc(slices.Clone(sessions), func(s *engine.Session) bool { return s == nil })
	var errs []error
	for _, s := range sessions {
		errs = append(errs, s.End(ctx))
		h, err := rr.cat.TryLock(s.Record.Name)
		if err != nil {
			continue // gone, or being mended: the last step reports that
		}
		if h.ID == s.Record.ID {
			d, err := rr.engine.Sandboxes.Unname(h)
			d.Release()
			errs = append(errs, err)
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

package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
)

// An Unfinished is a killed promotion that cannot be completed or reverted until its target can be opened and written
// to again. No data is lost: beside the target are the replaced files, in the state directory the journal.
type Unfinished struct {
	// ID is the promotion's identifier, Sandbox the name of the sandbox, and Target the target directory.
	ID      string `json:"id"`
	Sandbox string `json:"sandbox"`
	Target  string `json:"target"`
	Why     string `json:"why"` // the reason why the target cannot be opened or changed
	// Journal is the file from which recovery completes the promotion; [Reconciler.GiveUp] removes it.
	Journal string `json:"journal"`
	// Gone is set if the target directory was certainly deleted or moved away; else its filesystem may be unmounted.
	Gone bool `json:"gone,omitempty"`
	made time.Time
}

// String describes the unfinished promotion, the cause and the remedy in one line.
func (u Unfinished) String() string {
	return "an apply of " + u.Sandbox + " to " + pathlist.Printable(u.Target) + " was killed and is neither completed nor reverted: " + u.Why + "; " + u.mend()
}

// mend says in words what the user can do so that the promotion is completed, reverted or given up.
func (u Unfinished) mend() string {
	if u.Gone {
		return "the directory was deleted or moved away: move it back, or run snapfs undo --forget " + errs.Quoted(u.ID)
	}
	return "mount the filesystem of " + errs.Quoted(u.Target) + ", writable, and the next command completes or reverts it; if that cannot be, run snapfs undo --forget " + errs.Quoted(u.ID)
}

// Unfinished lists the killed promotions that waited for their targets at the last RecoverPromotions.
func (rc *Reconciler) Unfinished() []Unfinished {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return slices.Clone(rc.unfinished)
}

// UnfinishedOf returns the killed promotion of a sandbox that waits for its target, or nil. One that is older than the
// sandbox is of another sandbox, which had the name.
func (rc *Reconciler) UnfinishedOf(name string) *Unfinished {
	for _, u := range rc.Unfinished() {
		if u.Sandbox != name {
			continue
		}
		if rec, err := rc.cat.Get(name); err != nil || !rec.Created.After(u.made) {
			return &u
		}
	}
	return nil
}

// RefuseUnfinished returns ErrBusy, as an error of the operation op, if a killed promotion of the sandbox waits for
// its target, or if target (unless "") overlaps with the target of one that waits and may come back.
func (rc *Reconciler) RefuseUnfinished(op, name, target string) error {
	own := rc.UnfinishedOf(name)
	for _, u := range rc.Unfinished() {
		if own != nil && u.ID == own.ID || target != "" && !u.Gone && (hostfs.Within(target, u.Target) || hostfs.Within(u.Target, target)) {
			return &errs.Error{Op: op, Path: name, Kind: errs.ErrBusy, Err: errors.New(u.String()), Hints: []string{"snapfs undo --forget " + errs.Quoted(u.ID), "snapfs doctor"}}
		}
	}
	return nil
}

// GiveUp ends the killed promotion id, which waits for its target, as [promote.GiveUp] does. Its sandbox stays.
func (rc *Reconciler) GiveUp(ctx context.Context, id string) (promote.GivenUp, error) {
	g, err := promote.GiveUp(ctx, rc.promotionsDir(), id)
	if err != nil {
		return g, err
	}
	promote.EndReport(rc.promotionsDir(), id)
	rc.baseline.EndDisplaced()
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.unfinished = slices.DeleteFunc(rc.unfinished, func(u Unfinished) bool { return u.ID == id })
	return g, nil
}

// RecoverPromotions completes or reverts all promotions that were killed. One whose target cannot be opened or
// changed is reported once, and blocks only its own sandbox and target.
func (rc *Reconciler) RecoverPromotions(ctx context.Context) error {
	found, err := promote.Recover(ctx, rc.promotionsDir())
	var waiting []Unfinished
	for _, r := range found {
		if r.Waits != nil {
			u := Unfinished{ID: r.ID, Sandbox: r.Sandbox, Target: r.Path, Why: r.Waits.Error(), Journal: r.Journal, Gone: r.Gone, made: r.Made}
			waiting = append(waiting, u)
			if promote.FirstReport(rc.promotionsDir(), u.ID) {
				rc.notice(u.String())
			}
			continue
		}
		promote.EndReport(rc.promotionsDir(), r.ID)
		rc.notice(r.String())
		for _, p := range r.Changed {
			rc.notice("not restored, because it has changed since: " + pathlist.Printable(p) + "; the original is in " + pathlist.Printable(r.Saved))
		}
		err = errors.Join(err, rc.rememberRecovered(r))
		switch {
		case r.RolledBack != nil:
		case r.Redone:
			err = errors.Join(err, rc.stages.NoteRedone(r.Group))
		case r.Left != nil && !r.Done:
			err = errors.Join(err, rc.stages.NoteUndone(r.Group))
		}
	}
	if len(found) > len(waiting) {
		rc.baseline.EndDisplaced()
	}
	rc.mu.Lock()
	rc.unfinished = waiting
	rc.mu.Unlock()
	return err
}

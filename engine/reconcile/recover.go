package reconcile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

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
	// Journal is the file from which recovery completes the promotion. Removing it abandons the promotion.
	Journal string `json:"journal"`
}

// String describes the unfinished promotion, the cause and the remedy in one line.
func (u Unfinished) String() string {
	return "an apply of " + u.Sandbox + " to " + pathlist.Printable(u.Target) + " was killed and is neither completed nor reverted: " + u.Why + "; " + u.mend()
}

// mend says in words what the user can do so that the promotion is completed or reverted.
func (u Unfinished) mend() string {
	return "mount the filesystem of " + errs.Quoted(u.Target) + ", writable, and the next command completes or reverts it"
}

// Unfinished lists the killed promotions that waited for their targets at the last RecoverPromotions.
func (rc *Reconciler) Unfinished() []Unfinished {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return slices.Clone(rc.unfinished)
}

// UnfinishedOf returns the killed promotion of a sandbox that waits for its target, or nil.
func (rc *Reconciler) UnfinishedOf(name string) *Unfinished {
	for _, u := range rc.Unfinished() {
		if u.Sandbox == name {
			return &u
		}
	}
	return nil
}

// RefuseUnfinished returns ErrBusy, as an error of the operation op, if a killed promotion of the sandbox waits for
// its target, or if target (unless "") overlaps with the target of one that waits.
func (rc *Reconciler) RefuseUnfinished(op, name, target string) error {
	for _, u := range rc.Unfinished() {
		if u.Sandbox == name || target != "" && (hostfs.Within(target, u.Target) || hostfs.Within(u.Target, target)) {
			return &errs.Error{Op: op, Path: name, Kind: errs.ErrBusy, Err: errors.New(u.String()), Hints: []string{"snapfs doctor"}}
		}
	}
	return nil
}

// RecoverPromotions completes or reverts all promotions that were killed. One whose target cannot be opened or
// changed is reported once, and blocks only its own sandbox and target.
func (rc *Reconciler) RecoverPromotions(ctx context.Context) error {
	found, err := promote.Recover(ctx, rc.promotionsDir())
	var waiting []Unfinished
	for _, r := range found {
		if r.Waits != nil {
			u := Unfinished{ID: r.ID, Sandbox: r.Sandbox, Target: r.Path, Why: r.Waits.Error(), Journal: r.Journal}
			waiting = append(waiting, u)
			if rc.firstTime(u) {
				rc.notice(u.String())
			}
			continue
		}
		_ = os.Remove(rc.reportedFile(r.ID)) // usually absent
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

// reportedFile returns the path of the file that marks a killed promotion id as reported to the user.
func (rc *Reconciler) reportedFile(id string) string {
	return filepath.Join(rc.promotionsDir(), id+".told")
}

// firstTime marks a waiting promotion as reported to the user, and returns false if it already was. If it cannot be
// marked, it is reported again.
func (rc *Reconciler) firstTime(u Unfinished) bool {
	f, err := os.OpenFile(rc.reportedFile(u.ID), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	return !errors.Is(err, os.ErrExist)
}

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

// An Unfinished is a promotion that was killed, and that no command can complete or
// take back before its target can be opened again. Nothing of it is lost: what it
// displaced lies beside the target, and how to end it in the state directory.
type Unfinished struct {
	// ID is the promotion's, Sandbox whose changes it carries, and Target where to.
	ID      string `json:"id"`
	Sandbox string `json:"sandbox"`
	Target  string `json:"target"`
	// Why the target cannot be opened.
	Why string `json:"why"`
	// Journal is the file that says how to end it: who removes it gives that up.
	Journal string `json:"journal"`
}

// String says what is unfinished, why, and what mends it.
func (u Unfinished) String() string {
	return "an apply of " + u.Sandbox + " to " + pathlist.Printable(u.Target) + " was killed, and is neither completed nor taken back: " + u.Why + "; " + u.Mend()
}

// Mend says what has it ended.
func (u Unfinished) Mend() string {
	return "mount what " + pathlist.Printable(u.Target) + " lies on, and the next command ends it"
}

// Unfinished lists the promotions that wait for their targets, as this engine found them
// when it was opened, or last collected.
func (rc *Reconciler) Unfinished() []Unfinished {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return slices.Clone(rc.unfinished)
}

// UnfinishedOf is the promotion of a sandbox that waits, or nil.
func (rc *Reconciler) UnfinishedOf(name string) *Unfinished {
	for _, u := range rc.Unfinished() {
		if u.Sandbox == name {
			return &u
		}
	}
	return nil
}

// RefuseUnfinished refuses what would be done to a sandbox of which a promotion waits, or
// to a target, where there is one, that such a promotion is about: that is ErrBusy.
func (rc *Reconciler) RefuseUnfinished(op, name, target string) error {
	for _, u := range rc.Unfinished() {
		if u.Sandbox == name || target != "" && (hostfs.Within(target, u.Target) || hostfs.Within(u.Target, target)) {
			return &errs.Error{Op: op, Path: name, Kind: errs.ErrBusy, Err: errors.New(u.String()), Hints: []string{"snapfs doctor"}}
		}
	}
	return nil
}

// RecoverPromotions completes, or takes back, what a killed Apply left. What cannot be
// ended now is told once, and holds up its own sandbox and its own target alone.
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
		_ = os.Remove(rc.reportedFile(r.ID)) // mostly there is none
		what := "taken back"
		if r.Done {
			what = "completed"
		}
		rc.notice("an apply of " + r.Sandbox + " to " + pathlist.Printable(r.Path) + " was killed: it is " + what)
		for _, p := range r.Changed {
			rc.notice("left as it is now, because it was changed since: " + pathlist.Printable(p) + "; the old one lies in " + pathlist.Printable(r.Saved))
		}
		err = errors.Join(err, rc.rememberRecovered(r))
		if r.Left != nil && !r.Done {
			err = errors.Join(err, rc.stages.NoteUndone(r.Group))
		}
	}
	rc.mu.Lock()
	rc.unfinished = waiting
	rc.mu.Unlock()
	return err
}

func (rc *Reconciler) reportedFile(id string) string {
	return filepath.Join(rc.promotionsDir(), id+".told")
}

// firstTime notes that a promotion that waits was told, and reports whether it was not
// before. Where it cannot be noted it is told again.
func (rc *Reconciler) firstTime(u Unfinished) bool {
	f, err := os.OpenFile(rc.reportedFile(u.ID), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	return !errors.Is(err, os.ErrExist)
}

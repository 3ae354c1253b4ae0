package promote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/promote/journalfile"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Recovery reports how a promotion that a killed process left, or one to undo, was completed, reverted or
// undone, or why it waits.
type Recovery struct {
	// ID is the id of the promotion, Sandbox the name of its sandbox, and Path the path of its
	// target.
	ID, Sandbox, Path string
	// Group is the group of the promotion, as in [Promotion].
	Group string
	// Stamps has the stamps of restored paths, for [Base.Known].
	Stamps map[string]Stamp
	// Left has the stamps that a completed promotion had left before it was undone; nil
	// for all others.
	Left map[string]Stamp
	// Redone is set if an undone promotion was done again: Stamps and Left are then those of
	// its new and its old versions.
	Redone bool
	// Done is set if the promotion was committed, and only its leftovers were removed.
	// Otherwise it was reverted.
	Done bool
	// Changed lists paths that other programs changed since: they stay as they are. Saved is
	// the location of their old versions.
	Changed []string
	Saved   string
	// RolledBack is why an undo was rolled back: it could not revert all paths. The promotion stays, and can be undone
	// later. With Redone, a redo was rolled back, and the promotion stays undone. Changed is then empty.
	RolledBack error
	// Waits is why the promotion cannot be recovered now: its target cannot be opened (a disk is
	// not mounted) or not changed (the disk is read-only). The promotion and its old versions
	// stay.
	Waits error
	// Journal is the journal of a promotion that waits.
	Journal string
	// Gone is set if the target of a promotion that waits was certainly deleted or moved away: its filesystem is
	// mounted.
	Gone bool
	// Made is the time at which the promotion began.
	Made time.Time
}

// String says in one line what became of the killed promotion.
func (r Recovery) String() string {
	apply, outcome := "an apply of "+r.Sandbox+" to "+pathlist.Printable(r.Path), "reverted"
	switch {
	case r.RolledBack != nil && r.Redone:
		return "the redo of " + apply + " was killed and is rolled back: " + r.RolledBack.Error()
	case r.RolledBack != nil:
		return "the undo of " + apply + " was killed and is rolled back: " + r.RolledBack.Error()
	case r.Done, r.Redone:
		outcome = "completed"
	}
	return apply + " was killed and is now " + outcome
}

// Recover ends promotions that were killed: it removes the leftovers of committed ones and
// reverts all others. It may be killed and repeated, and does not touch a running promotion.
// If a target cannot be opened or changed, its promotion waits, see Recovery.Waits. An error
// with one promotion does not affect the others. Cost: one readdir of the state directory if there is
// nothing to do. Errors: ErrCorrupt, ErrNotSupported (a newer journal).
func Recover(ctx context.Context, stateDir string) ([]Recovery, error) {
	names, err := journalfile.Names(stateDir, suffixJournal, suffixUndoing, suffixDropping, suffixSplit, suffixNew)
	if err != nil || len(names) == 0 {
		return nil, wrap("recovering", stateDir, err)
	}
	lock, err := journalfile.Lock(stateDir, false)
	if errors.Is(err, errs.ErrBusy) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap("recovering", stateDir, err)
	}
	defer vfs.Unlock(lock)
	if names, err = journalfile.Names(stateDir, suffixJournal, suffixUndoing, suffixDropping, suffixSplit); err != nil {
		return nil, wrap("recovering", stateDir, err)
	}
	var all []Recovery
	var failures []error
	for _, name := range names {
		one, err := recoverOne(ctx, filepath.Join(stateDir, name))
		if err != nil {
			failures = append(failures, wrap("recovering", one.Path, err))
			continue
		}
		// One that was forgotten, or not undone yet, is reported only if it waits.
		if ext := filepath.Ext(name); one.Waits != nil || ext != suffixDropping && ext != suffixSplit {
			all = append(all, one)
		}
	}
	if len(failures) == 0 && !slices.ContainsFunc(all, func(r Recovery) bool { return r.Waits != nil }) {
		failures = append(failures, removeUnfinished(stateDir))
	}
	return all, errors.Join(failures...)
}

// removeUnfinished removes the incomplete journals of promotions, those with the suffix .new, which snapfs
// was killed in writing. They were not in force yet.
func removeUnfinished(stateDir string) error {
	names, err := journalfile.Names(stateDir, suffixNew)
	for _, name := range names {
		err = errors.Join(err, os.Remove(filepath.Join(stateDir, name)))
	}
	return err
}

// recoverOne reads the journal of a killed promotion and reverts the promotion, or completes it if it was
// committed. After any error from the target the promotion waits: a disk that is read-only or damaged must
// not stop the commands for other targets.
func recoverOne(ctx context.Context, journal string) (Recovery, error) {
	r, err := readJournal(journal)
	if err != nil {
		return Recovery{Path: journal}, err
	}
	one := Recovery{ID: r.id, Group: r.group, Sandbox: r.sandbox, Path: r.path, Made: r.made, Done: r.commit && filepath.Ext(journal) != suffixUndoing}
	if filepath.Ext(journal) == suffixSplit {
		if !r.commit { // killed before it was whole: nothing was separated
			return one, os.Remove(journal)
		}
		_, err := r.endSeparation(journal)
		return one, err
	}
	if r.path == "" { // killed before its first lines were complete: nothing was made
		one.ID = strings.TrimSuffix(filepath.Base(journal), suffixJournal)
		return one, os.Remove(journal)
	}
	real, err := r.openKilled()
	if err != nil {
		one.Waits, one.Journal, one.Gone = wrap("recovering", r.path, err), journal, r.gone()
		return one, nil
	}
	defer real.Root.Close()
	defer real.Close()
	defer r.closeStages()
	ended, err := r.end(ctx, real, journal, one)
	if err != nil && !errors.Is(err, errs.ErrInterrupted) && ctx.Err() == nil {
		one.Waits, one.Journal = wrap("recovering", r.path, err), journal
		return one, nil
	}
	return ended, err
}

// end completes or reverts the killed promotion of a journal whose target is open. It returns the report one
// with the result.
func (r *record) end(ctx context.Context, real *nodes.Dirs, journal string, one Recovery) (Recovery, error) {
	if filepath.Ext(journal) == suffixUndoing && exists(r.inverseFile(filepath.Dir(journal))) { // killed at the end
		one.Stamps, one.Left = r.oldStamps(real), r.leftStamps()
		return one, os.Remove(journal)
	}
	if one.Done && filepath.Ext(journal) == suffixJournal && r.retain != retainNone {
		return one, r.makeUndoable(journal)
	}
	if one.Done {
		return one, r.finishCommitted(ctx, real, journal)
	}
	var inverse *record
	if path := r.inverseFile(filepath.Dir(journal)) + suffixNew; filepath.Ext(journal) == suffixUndoing && exists(path) {
		var err error
		if inverse, err = readJournal(path); err != nil {
			return one, err
		}
		inverse.stages = r.stages // these are open
	}
	ended, err := r.takeBack(ctx, real, journal, inverse)
	if ended.RolledBack != nil {
		err = nil // reported as the reason
	}
	return ended, err
}

// openTarget opens the root of a promotion's target, and the stages (private directories with old or new
// versions) that its journal lists; the caller closes them. Error: ErrNotFound if another directory has the
// target's path.
func (r *record) openTarget() (*nodes.Dirs, error) {
	return r.openTargetUnless(func(st *vfs.Stat) bool { return st.Ino != r.ino })
}

// openKilled is openTarget for a killed promotion. It also knows a directory that has the inode number of the target
// but was made later, for example by git clone after rm -rf: nothing may be moved there.
func (r *record) openKilled() (*nodes.Dirs, error) {
	return r.openTargetUnless(func(st *vfs.Stat) bool { return st.Ino != r.ino || r.bornSince(st) })
}

func (r *record) openTargetUnless(other func(st *vfs.Stat) bool) (*nodes.Dirs, error) {
	root, err := os.Open(r.path)
	if err != nil {
		return nil, err
	}
	real := &nodes.Dirs{Root: root}
	st, err := vfs.Lstat(int(root.Fd()), "")
	if err == nil && other(&st) {
		err = &errs.Error{
			Op: "recovering", Path: r.path, Kind: errs.ErrNotFound,
			Err: errors.New("the path leads to another directory now (is a disk not mounted?)"),
		}
	}
	for _, s := range r.stages {
		if err == nil {
			err = s.open(real)
		}
	}
	if err != nil {
		r.closeStages()
		real.Close()
		root.Close()
		return nil, err
	}
	return real, nil
}

func (r *record) closeStages() {
	for _, s := range r.stages {
		s.close()
	}
}

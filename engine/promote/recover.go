package promote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Recovery says what became of a promotion that was not ended.
type Recovery struct {
	// ID of the promotion, Sandbox as in its Options, and Path of its target.
	ID, Sandbox, Path string
	// Group is as in [Promotion].
	Group string
	// Stamps are those of what was put back, for [Base.Known].
	Stamps map[string]Stamp
	// Left are those that it had left, of one that was complete before it was taken
	// back; nil for all others.
	Left map[string]Stamp
	// Done: the promotion was complete, and only its leftovers were removed.
	// Otherwise it was taken back.
	Done bool
	// Kept are paths that others have changed since, which were left as they
	// are; Saved says where the old versions lie.
	Kept  []string
	Saved string
	// Waits is why nothing could be done about it now: its target cannot be opened (a
	// disk that is not mounted). It stays as it is, with all that it displaced.
	Waits error
	// Journal is the file that says how to end it, as long as it waits.
	Journal string
}

// Recover ends what killed promotions left: those that were complete are
// cleaned up after, all others taken back. It is safe to repeat and to kill, and
// leaves a promotion alone that is still running. One whose target cannot be opened
// stays for later, and says so; whatever is wrong with one, the others are seen to.
// Cost: one readdir of the state directory when there is nothing to do. Errors:
// ErrCorrupt, ErrNotSupported (a newer journal).
func Recover(ctx context.Context, stateDir string) ([]Recovery, error) {
	names, err := journals(stateDir, suffixJournal, suffixUndoing, suffixDropping)
	if err != nil || len(names) == 0 {
		return nil, recovering(stateDir, err)
	}
	lock, err := lockState(stateDir, false)
	if errors.Is(err, errs.ErrBusy) {
		return nil, nil
	}
	if err != nil {
		return nil, recovering(stateDir, err)
	}
	defer vfs.Unlock(lock)
	if names, err = journals(stateDir, suffixJournal, suffixUndoing, suffixDropping); err != nil {
		return nil, recovering(stateDir, err)
	}
	var all []Recovery
	var failures []error
	for _, name := range names {
		one, err := recoverOne(ctx, filepath.Join(stateDir, name))
		if err != nil {
			failures = append(failures, recovering(one.Path, err))
			continue
		}
		if filepath.Ext(name) != suffixDropping { // nobody waits for word of that
			all = append(all, one)
		}
	}
	return all, errors.Join(failures...)
}

func recovering(path string, err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	return &errs.Error{Op: "recovering", Path: path, Kind: kindOf(err), Err: plain{err}}
}

// recoverOne ends one promotion.
func recoverOne(ctx context.Context, journal string) (Recovery, error) {
	r, err := readJournal(journal)
	if err != nil {
		return Recovery{Path: journal}, err
	}
	one := Recovery{ID: r.id, Group: r.group, Sandbox: r.sandbox, Path: r.path, Done: r.commit && filepath.Ext(journal) != suffixUndoing}
	if r.path == "" { // nothing was made before its first lines were whole
		one.ID = strings.TrimSuffix(filepath.Base(journal), suffixJournal)
		return one, os.Remove(journal)
	}
	real, err := r.openTarget()
	if err != nil {
		one.Waits, one.Journal = recovering(r.path, err), journal
		return one, nil
	}
	defer real.root.Close()
	defer real.close()
	defer r.closeStages()
	if one.Done && filepath.Ext(journal) == suffixJournal && r.keep != keepNot {
		return one, r.settle(journal)
	}
	if one.Done {
		return one, r.finishCommitted(ctx, real, journal)
	}
	one.Saved = r.stagePaths()
	one.Kept, err = r.back(ctx, real, journal)
	if len(one.Kept) == 0 {
		one.Saved = ""
	}
	one.Stamps, one.Left = r.oldStamps(real), r.left()
	return one, err
}

// openTarget opens the target and the stages of a journal.
func (r *record) openTarget() (*dirs, error) {
	root, err := os.Open(r.path)
	if err != nil {
		return nil, err
	}
	real := &dirs{root: root}
	st, err := vfs.Lstat(int(root.Fd()), "")
	if err == nil && st.Ino != r.ino {
		err = &errs.Error{
			Op: "recovering", Path: r.path, Kind: errs.ErrNotFound,
			Err: errors.New("another directory is there now; is a disk not mounted?"),
		}
	}
	for _, s := range r.stages {
		if err == nil {
			err = s.open(real)
		}
	}
	if err != nil {
		r.closeStages()
		real.close()
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

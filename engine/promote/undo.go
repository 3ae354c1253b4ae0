package promote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// Undo takes a promotion back that was made with Options.KeepUndo, as long as
// nobody has changed its result: otherwise it touches nothing, and ErrDrifted
// names the paths. Errors: ErrNotFound, ErrBusy.
func Undo(ctx context.Context, stateDir, id string) (Recovery, error) {
	one := Recovery{ID: id}
	err := kept(stateDir, id, func(r *record, real *dirs, journal string) error {
		if err := r.mayUndo(real); err != nil {
			return err
		}
		undoing := strings.TrimSuffix(journal, suffixUndo) + suffixUndoing
		if err := errors.Join(os.Rename(journal, undoing), syncDir(stateDir)); err != nil {
			return err
		}
		one.Sandbox, one.Path, one.Saved = r.sandbox, r.path, r.stagePaths()
		var err error
		one.Kept, err = r.back(ctx, real, undoing)
		if err == nil && len(one.Kept) > 0 {
			err = movedAway(one.Kept[0])
		} else {
			one.Saved = ""
		}
		one.Stamps = r.oldStamps(real)
		return err
	})
	return one, err
}

// Forget drops what [Undo] would need.
func Forget(ctx context.Context, stateDir, id string) error {
	return kept(stateDir, id, func(r *record, real *dirs, journal string) error {
		// From here on Recover can do it, too.
		dropping := strings.TrimSuffix(journal, suffixUndo) + suffixJournal
		if err := os.Rename(journal, dropping); err != nil {
			return err
		}
		return r.finishCommitted(ctx, real, dropping)
	})
}

// kept opens what was kept of a promotion.
func kept(stateDir, id string, f func(r *record, real *dirs, journal string) error) error {
	if !snapshot.ValidID(id) {
		return &snapshot.Error{Op: "undoing", ID: Printable(id), Kind: snapshot.ErrNotFound}
	}
	lock, err := lockState(stateDir, false)
	if err != nil {
		return undoing(id, err)
	}
	defer lock.Close()
	journal := filepath.Join(stateDir, id+suffixUndo)
	r, err := readJournal(journal)
	if err != nil {
		return undoing(id, err)
	}
	real, err := r.openTarget()
	if err != nil {
		return undoing(id, err)
	}
	defer real.root.Close()
	defer real.close()
	defer r.closeStages()
	return undoing(id, f(r, real, journal))
}

func undoing(id string, err error) error {
	var done *snapshot.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	return &snapshot.Error{Op: "undoing", ID: id, Kind: kindOf(err), Err: err}
}

// mayUndo says which results others have changed since.
func (r *record) mayUndo(real *dirs) error {
	var changed Refused
	altered := r.altered() // other names of these have got new metadata, too
	for _, o := range r.ops {
		if o.verb == alter {
			continue
		}
		dir, name, err := real.at(o.path)
		ours := err == nil
		if ours {
			here, err := statOrNil(dir, name)
			if err != nil {
				return at(o.path, err)
			}
			if o.verb == drop {
				ours = here == nil
			} else {
				ours = here != nil && (o.new.is(here) || altered[here.Ino] && o.new.sameNode(here)) && !changedBeneath(dir, name, o, altered)
			}
		}
		if !ours {
			changed.add(o.path, "it has been changed since")
		}
	}
	return changed.err(r.path, snapshot.ErrDrifted)
}

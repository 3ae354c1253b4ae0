package promote

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Undo takes a promotion back that was made with Options.KeepUndo, as long as
// nobody has changed its result: otherwise it touches nothing, and ErrDrifted
// names the paths. A later promotion of the same paths is such a change until it
// is undone itself. Killed, it is completed by Recover.
// Errors: ErrNotFound, ErrBusy, ErrCorrupt (what it displaced is not there).
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
		one.Group, one.Sandbox, one.Path, one.Saved = r.group, r.sandbox, r.path, r.stagePaths()
		var err error
		one.Kept, err = r.back(ctx, real, undoing)
		if err == nil && len(one.Kept) > 0 {
			err = movedAway(one.Kept[0])
		} else {
			one.Saved = ""
		}
		one.Stamps, one.Left = r.oldStamps(real), r.left()
		return err
	})
	return one, err
}

// left are the stamps of what a complete promotion left; nil of others, and of those
// that were taken back before any were noted.
func (r *record) left() map[string]Stamp {
	if !r.commit {
		return nil
	}
	all := map[string]Stamp{}
	maps.Copy(all, r.stamps)
	for _, o := range r.ops {
		if o.verb == drop {
			all[o.path] = Stamp{}
		}
	}
	return all
}

// Forget drops what [Undo] would need.
func Forget(ctx context.Context, stateDir, id string) error {
	return kept(stateDir, id, forget(ctx))
}

func forget(ctx context.Context) func(r *record, real *dirs, journal string) error {
	return func(r *record, real *dirs, journal string) error {
		// From here on Recover can do it, too.
		dropping := strings.TrimSuffix(journal, suffixUndo) + suffixDropping
		if err := os.Rename(journal, dropping); err != nil {
			return err
		}
		return r.finishCommitted(ctx, real, dropping)
	}
}

// kept opens what was kept of a promotion, under the lock.
func kept(stateDir, id string, f func(r *record, real *dirs, journal string) error) error {
	lock, err := lockState(stateDir, false)
	if err != nil {
		return undoing(id, err)
	}
	defer vfs.Unlock(lock)
	return keptBy(stateDir, id, f)
}

// keptBy is kept for those who have the lock.
func keptBy(stateDir, id string, f func(r *record, real *dirs, journal string) error) error {
	if !snapshot.ValidID(id) {
		return &errs.Error{Op: "undoing", Subject: pathlist.Printable(id), Kind: errs.ErrNotFound}
	}
	journal := filepath.Join(stateDir, id+suffixUndo)
	r, err := readJournal(journal)
	if errors.Is(err, fs.ErrNotExist) {
		return &errs.Error{Op: "undoing", Subject: id, Kind: errs.ErrNotFound, Err: errors.New("there is none of this name that could be undone")}
	}
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
	var done *errs.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &done):
		if done.Op == doing { // what undoing shares with applying
			done.Op = "undoing"
		}
		return err
	}
	return &errs.Error{Op: "undoing", Subject: id, Kind: kindOf(err), Err: plain{err}}
}

// mayUndo says which results others have changed since, or that what was
// displaced has gone. It touches nothing.
func (r *record) mayUndo(real *dirs) error {
	var changed, lost pathlist.List
	altered := r.altered() // other names of these have got new metadata, too
	for _, o := range r.ops {
		same, err := r.asLeft(real, o, altered)
		if err != nil {
			return at(o.path, err)
		}
		if !same {
			changed.Add(o.path, "it has been changed since")
		}
		if o.verb != swap && o.verb != drop {
			continue
		}
		var there *vfs.Stat
		if s := r.stages[o.stage]; s.dir != nil {
			if there, err = statOrNil(s.dir, o.name); err != nil {
				return at(o.path, err)
			}
		}
		if there == nil || !o.old.sameNode(there) {
			lost.Add(o.path, "what it held before is not in "+r.stagePaths()+" any more")
		}
	}
	if err := refused(&changed, r.path, errs.ErrDrifted); err != nil {
		return err
	}
	return refused(&lost, r.path, errs.ErrCorrupt)
}

// asLeft reports whether a path holds what an op left there.
func (r *record) asLeft(real *dirs, o *op, altered map[uint64]bool) (bool, error) {
	dir, name, err := real.at(o.path)
	if missing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	here, err := statOrNil(dir, name)
	switch {
	case err != nil:
		return false, err
	case o.verb == drop || here == nil:
		return o.verb == drop && here == nil, nil
	case !here.IsDir() && !r.stamped(o.path, here):
		return false, nil
	case o.verb == alter:
		return o.asAltered(dir, name, here)
	case altered[here.Ino] && o.new.sameNode(here):
		return true, nil
	}
	if !o.new.is(here) {
		return false, nil
	}
	if !here.IsDir() {
		return true, nil
	}
	known := maps.Clone(o.news)
	err = r.beneathAsLeft(dir, name, o, known, altered)
	return err == nil && len(known) == 0, errUnlessChanged(err)
}

var errChanged = errors.New("changed")

func errUnlessChanged(err error) error {
	if errors.Is(err, errChanged) || missing(err) {
		return nil
	}
	return err
}

// beneathAsLeft looks at all that lies beneath a directory that an op made, and
// takes from known what is as it was left: errChanged for the first that is not.
func (r *record) beneathAsLeft(in *os.File, name string, o *op, known map[string]ident, altered map[uint64]bool) error {
	dir, err := openNode(in, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return walk(dir, "", func(rel string, in *os.File, name string) error {
		st, err := vfs.Lstat(int(in.Fd()), name)
		if err != nil {
			return err
		}
		i, ok := known[rel]
		same := i.is(&st) && (st.IsDir() || r.stamped(join(o.path, rel), &st)) || altered[st.Ino] && i.sameNode(&st)
		if !ok || !same {
			return errChanged
		}
		delete(known, rel)
		return nil
	})
}

// stamped reports whether a node has the change time that was noted of it. One
// of which nothing was noted has to be told by its identity alone.
func (r *record) stamped(path string, st *vfs.Stat) bool {
	s, noted := r.stamps[path]
	return !noted || s.Ino == st.Ino && s.CTime.Equal(st.CTime.Time())
}

// asAltered reports whether the metadata that was set is still what was set.
func (o *op) asAltered(dir *os.File, name string, here *vfs.Stat) (bool, error) {
	want, now := o.after, here.Mode&0o7777
	switch {
	case !o.old.sameNode(here), !here.IsDir() && here.Size != o.old.size:
		return false, nil
	case want.xattrs == nil: // of the first version: not noted
		return true, nil
	case want.what&diff.Mode != 0 && now != want.mode && !here.IsSymlink(), want.what&diff.Mode == 0 && !here.IsDir() && now != o.old.mode&0o7777:
		return false, nil
	case want.what&diff.Owner != 0 && (here.UID != want.uid || here.GID != want.gid):
		return false, nil
	case want.what&diff.Time != 0 && !here.IsDir() && here.MTime != want.mtime, want.what&diff.Time == 0 && !here.IsDir() && here.MTime != o.old.mtime:
		return false, nil
	case want.what&diff.Xattrs == 0:
		return true, nil
	}
	node, _, err := lookAt(dir, name)
	if missing(err) {
		return false, nil
	}
	return err == nil && maps.Equal(carried(node.Xattrs), want.xattrs), err
}

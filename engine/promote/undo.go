package promote

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/promote/journalfile"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Undo reverts the promotion id, made with Options.KeepUndo, whose journal is in stateDir. If another program, or a
// later promotion that was not undone, has changed the same paths since, Undo changes nothing, and ErrDrifted names
// the paths. If one changes a path in the midst, or a step fails, Undo reverts its own steps. If it is killed,
// Recover completes it or rolls it back. Errors: ErrNotFound, ErrBusy, ErrCorrupt (the old versions are gone).
func Undo(ctx context.Context, stateDir, id string) (Recovery, error) {
	return UndoWith(ctx, stateDir, id, UndoOptions{})
}

// UndoOptions are the options of [UndoWith], which undoes a promotion or some of its paths, and in part of
// [Redo].
type UndoOptions struct {
	// Same makes the undo replace any file at a path for which it returns true, also one that the promotion did
	// not leave there. It may be nil.
	Same func(path string) bool
	// Take selects the paths to undo, of those that Paths lists as alone; nil means all. The rest can be
	// undone later.
	Take func(path string) bool
	// Again, if it is not zero, is the time of the undo, and lets Redo do the promotion
	// again, unless that was Temporary.
	Again time.Time
	// DryRun checks everything and changes nothing.
	DryRun bool
}

// UndoWith undoes a promotion, or only some of its paths, as Undo does, with options. Errors: also
// ErrConflict, if o.Take selects only some of the names (hard links) of a file.
func UndoWith(ctx context.Context, stateDir, id string, o UndoOptions) (Recovery, error) {
	return takeBack(ctx, stateDir, id, suffixUndo, o)
}

// takeBack undoes the promotion id, or redoes an undone one. suffix, that of its journal's file name, says
// which. It first checks that nobody has changed the results since.
func takeBack(ctx context.Context, stateDir, id, suffix string, o UndoOptions) (one Recovery, err error) {
	lock, err := journalfile.Lock(stateDir, false)
	if err != nil {
		return Recovery{ID: id}, undoing(id, err)
	}
	defer vfs.Unlock(lock)
	one = Recovery{ID: id}
	err = withRetainedLocked(stateDir, id, suffix, func(r *record, real *nodes.Dirs, journal string) error {
		if o.Same != nil {
			r.accept(real, o.Same)
		}
		undone := r
		if o.Take != nil {
			if undone, err = r.part(o.Take); err != nil {
				return err
			}
		}
		if err := undone.checkUndo(real); err != nil || o.DryRun {
			return err
		}
		if undone != r {
			if journal, err = undone.separate(stateDir); err != nil {
				return err
			}
		}
		inverse, err := undone.prepareInverse(real, stateDir, o.Again)
		if err != nil {
			return err
		}
		undoing := withSuffix(journal, suffixUndoing) // Recover completes it from here on
		if err := errors.Join(os.Rename(journal, undoing), vfs.SyncDir(stateDir)); err != nil {
			return err
		}
		one, err = undone.takeBack(ctx, real, undoing, inverse)
		return err
	})
	if err == nil && !o.Again.IsZero() && !o.DryRun {
		trim(ctx, stateDir)
	}
	return one, err
}

// takeBack reverts the promotion of a journal whose target is open, and returns the result. If it cannot revert all
// steps, it does those again that it has reverted, and returns an error. inverse, the inverse of r, says how; without
// it, takeBack reverts as much as it can.
func (r *record) takeBack(ctx context.Context, real *nodes.Dirs, journal string, inverse *record) (one Recovery, err error) {
	one = Recovery{ID: r.id, Group: r.group, Sandbox: r.sandbox, Path: r.path, Redone: !r.undone.IsZero(), Left: r.leftStamps()}
	one.Changed, err = r.revertReady(ctx, real)
	if inverse != nil && (err != nil || len(one.Changed) > 0) {
		ctx := context.WithoutCancel(ctx)
		left, stamps, failure := r.rollBack(ctx, real, journal, inverse, one.Changed)
		err = r.gaveUp(one.Changed, left, err, failure)
		if one.Changed, one.Stamps = nil, stamps; failure == nil {
			one.RolledBack = err
		}
		return one, err
	}
	if err == nil {
		err = r.endRevert(ctx, real, journal, len(one.Changed) > 0)
	}
	if len(one.Changed) > 0 {
		one.Saved = r.stagePaths()
	}
	one.Stamps = r.oldStamps(real)
	return one, err
}

func withSuffix(journal, suffix string) string {
	return strings.TrimSuffix(journal, filepath.Ext(journal)) + suffix
}

// accept makes an undo expect the real files that exist now, at the paths for which same returns true, such as a git
// index that git has rewritten. It changes only r.
func (r *record) accept(real *nodes.Dirs, same func(path string) bool) {
	for _, o := range r.ops {
		if o.verb != put && o.verb != swap || !same(o.path) {
			continue
		}
		if st, err := real.Stat(o.path); err == nil && st.IsRegular() {
			if o.new = nodes.IdentOf(&st); r.stamps != nil {
				r.stamps[o.path] = stampOf(&st)
			}
		}
	}
}

// leftStamps returns the stamps (inode and change time) of the files that a committed promotion left; nil for
// a promotion that was not committed.
func (r *record) leftStamps() map[string]Stamp {
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

// Forget removes the old versions of files that [Undo] needs, or the new ones that [Redo] needs, of the promotion id,
// and its journal in stateDir. The promoted files stay.
func Forget(ctx context.Context, stateDir, id string) error {
	lock, err := journalfile.Lock(stateDir, false)
	if err != nil {
		return undoing(id, err)
	}
	defer vfs.Unlock(lock)
	return withRetainedLocked(stateDir, id, retainedAs(stateDir, id), forget(ctx))
}

// retainedAs returns the suffix of the file name of a promotion's journal: that of an undone promotion, if a
// redo is possible, else that of one that can be undone.
func retainedAs(stateDir, id string) string {
	if exists(filepath.Join(stateDir, id+suffixRedo)) {
		return suffixRedo
	}
	return suffixUndo
}

func forget(ctx context.Context) func(r *record, real *nodes.Dirs, journal string) error {
	return func(r *record, real *nodes.Dirs, journal string) error {
		// Recover completes it from here on.
		dropping := withSuffix(journal, suffixDropping)
		if err := os.Rename(journal, dropping); err != nil {
			return err
		}
		return r.finishCommitted(ctx, real, dropping)
	}
}

// withRetainedLocked calls f with the journal and the open target of a promotion that can still be undone or
// redone. suffix, that of the journal's file name, says which. The caller holds the lock of the state
// directory.
func withRetainedLocked(stateDir, id, suffix string, f func(r *record, real *nodes.Dirs, journal string) error) error {
	if !snapshot.ValidID(id) {
		return &errs.Error{Op: "undoing", Subject: pathlist.Printable(id), Kind: errs.ErrNotFound}
	}
	journal := filepath.Join(stateDir, id+suffix)
	r, err := readJournal(journal)
	if errors.Is(err, fs.ErrNotExist) {
		return &errs.Error{Op: "undoing", Subject: id, Kind: errs.ErrNotFound, Err: errors.New("no promotion with this ID can be undone")}
	}
	if err != nil {
		return undoing(id, err)
	}
	real, err := r.openTarget()
	if err != nil {
		return undoing(id, err)
	}
	defer real.Root.Close()
	defer real.Close()
	defer r.closeStages()
	return undoing(id, f(r, real, journal))
}

func undoing(id string, err error) error {
	var done *errs.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &done):
		if done.Op == doing { // shared with Apply
			done.Op = "undoing"
		}
		return err
	}
	return &errs.Error{Op: "undoing", Subject: id, Kind: kindOf(err), Err: plain(err)}
}

// checkUndo returns an error if the promotion cannot be undone: the target is read-only, other programs changed
// results, or old versions are gone. The error names the paths. checkUndo changes nothing.
func (r *record) checkUndo(real *nodes.Dirs) error {
	if err := nodes.CheckWritable(real.Root); err != nil {
		return err
	}
	var changed, lost pathlist.List
	altered := r.altered() // promoted metadata is visible through other names, too
	for _, o := range r.ops {
		same, err := r.unchangedResult(real, o, altered)
		if err != nil {
			return at(o.path, err)
		}
		if !same {
			changed.Add(o.path, "changed since")
		}
		if o.verb != swap && o.verb != drop {
			continue
		}
		var there *vfs.Stat
		if s := r.stages[o.stage]; s.dir != nil {
			if there, err = nodes.StatOrNil(s.dir, o.name); err != nil {
				return at(o.path, err)
			}
		}
		if there == nil || !o.old.SameNode(there) {
			lost.Add(o.path, "the old version is missing from "+r.stagePaths())
		}
	}
	if err := refused(&changed, r.path, errs.ErrDrifted); err != nil {
		return err
	}
	return refused(&lost, r.path, errs.ErrCorrupt)
}

// unchangedResult reports whether a path still has the file that the step o of a promotion put there, so that
// an undo may replace it. The inodes in altered may have other metadata, because another step set that.
func (r *record) unchangedResult(real *nodes.Dirs, o *op, altered alterations) (bool, error) {
	dir, name, err := real.At(o.path)
	if nodes.Missing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	here, err := nodes.StatOrNil(dir, name)
	switch {
	case err != nil:
		return false, err
	case o.verb == drop || here == nil:
		return o.verb == drop && here == nil, nil
	case !here.IsDir() && !r.stamped(o.path, here):
		return false, nil
	case o.verb == alter:
		return o.unchangedMetadata(dir, name, here)
	case altered.explains(o.new, here):
		return true, nil
	}
	if !o.new.Is(here) {
		return false, nil
	}
	if !here.IsDir() {
		return true, nil
	}
	known := maps.Clone(o.newTree)
	err = r.unchangedTree(dir, name, o, known, altered)
	return err == nil && len(known) == 0, errUnlessChanged(err)
}

var errChanged = errors.New("changed")

func errUnlessChanged(err error) error {
	if errors.Is(err, errChanged) || nodes.Missing(err) {
		return nil
	}
	return err
}

// unchangedTree checks everything below a directory that the step o created, and removes unchanged nodes from known.
// altered is as in unchangedResult. It returns errChanged for the first changed node.
func (r *record) unchangedTree(in *os.File, name string, o *op, known map[string]nodes.Ident, altered alterations) error {
	dir, err := nodes.Open(in, name)
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
		same := i.Is(&st) && (st.IsDir() || r.stamped(nodes.Join(o.path, rel), &st)) || altered.explains(i, &st)
		if !ok || !same {
			return errChanged
		}
		delete(known, rel)
		return nil
	})
}

// stamped reports whether a node has the stamp that the journal lists for its path. If none is listed it returns true.
func (r *record) stamped(path string, st *vfs.Stat) bool {
	s, noted := r.stamps[path]
	return !noted || s.Ino == st.Ino && s.CTime.Equal(st.CTime.Time())
}

// unchangedMetadata reports whether the file or directory name still has the metadata that this step set, so
// that an undo may replace it.
func (o *op) unchangedMetadata(dir *os.File, name string, here *vfs.Stat) (bool, error) {
	want, now := o.after, here.Mode&0o7777
	switch {
	case !o.old.SameNode(here), !here.IsDir() && here.Size != o.old.Size:
		return false, nil
	case want.Xattrs == nil: // journal of the first version: not recorded
		return true, nil
	case want.What&diff.Mode != 0 && now != want.Mode && !here.IsSymlink(), want.What&diff.Mode == 0 && !here.IsDir() && now != o.old.Mode&0o7777:
		return false, nil
	case want.What&diff.Owner != 0 && (here.UID != want.UID || here.GID != want.GID):
		return false, nil
	case want.What&diff.Time != 0 && !here.IsDir() && here.MTime != want.MTime, want.What&diff.Time == 0 && !here.IsDir() && here.MTime != o.old.MTime:
		return false, nil
	case want.What&diff.Xattrs == 0:
		return true, nil
	}
	node, _, err := nodes.Read(dir, name)
	if nodes.Missing(err) {
		return false, nil
	}
	return err == nil && maps.Equal(nodes.PromotedXattrs(node.Xattrs), want.Xattrs), err
}

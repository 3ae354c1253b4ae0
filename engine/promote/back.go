package promote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// takeBack undoes a promotion after cause, which it returns, with what went
// wrong in taking back.
func (w *work) takeBack(ctx context.Context, cause error) error {
	if w.journal == nil {
		return cause
	}
	kept, err := w.record.back(context.WithoutCancel(ctx), &w.real, w.journal.Name())
	if err == nil && len(kept) == 0 {
		return cause
	}
	if err != nil {
		err = fmt.Errorf("and not all could be taken back, which the next command tries again: %w", err)
	} else {
		var left pathlist.List
		for _, path := range kept {
			left.Add(path, "others have changed it meanwhile, and it was left")
		}
		err = fmt.Errorf("%w (the old versions are in %s)", &left, w.stagePaths())
	}
	kind := errs.KindOf(cause)
	if kind == nil {
		kind = kindOf(cause)
	}
	return &errs.Error{Op: doing, Path: w.t.Path, Kind: kind, Err: plain{fmt.Errorf("%w; %w", cause, err)}}
}

func (r *record) stagePaths() string {
	var list []string
	for _, s := range r.stages {
		if s.beside {
			list = append(list, filepath.Join(filepath.Dir(r.path), s.name))
		} else {
			list = append(list, filepath.Join(r.path, s.where, s.name))
		}
	}
	return strings.Join(list, ", ")
}

// back takes a promotion back, from wherever it stands, and removes its stages
// and its journal. Every step is decided by where the inodes are, so it may be
// repeated, and killed. kept are paths that others have changed since: they are
// left as they are, and what they displaced stays in the stage.
func (r *record) back(ctx context.Context, real *dirs, journal string) (kept []string, err error) {
	if r.ready {
		if kept, err = r.backAll(ctx, real); err != nil {
			return kept, err
		}
	}
	if len(kept) == 0 {
		err = r.removeStages(ctx, real)
	}
	for _, pl := range r.places {
		if err == nil {
			err = fault.Point(ctx, "restore a directory")
		}
		err = errors.Join(err, pl.restore(real))
	}
	if err == nil {
		err = r.restamp(real, filepath.Dir(journal))
	}
	if err == nil {
		err = r.syncAll(ctx, real)
	}
	if err != nil {
		return kept, err
	}
	slices.Sort(kept)
	return kept, endJournal(ctx, journal, len(kept) > 0)
}

// backAll undoes all ops in reverse: first the metadata, from the top down, then
// what was moved.
func (r *record) backAll(ctx context.Context, real *dirs) (kept []string, err error) {
	undo := func(o *op) error {
		if err := fault.Point(ctx, "take back"); err != nil {
			return at(o.path, err)
		}
		ok, e := r.backOne(real, o)
		if e != nil {
			err = errors.Join(err, at(o.path, e))
		} else if !ok {
			kept = append(kept, o.path)
		}
		return nil
	}
	for _, o := range r.ops {
		if o.verb == alter {
			if err := undo(o); err != nil {
				return kept, err
			}
		}
	}
	for _, pl := range slices.Backward(r.places) {
		if pl.widen {
			err = errors.Join(err, pl.setMode(real, pl.mode|unix.S_IRWXU))
		}
	}
	for _, o := range slices.Backward(r.ops) {
		if o.verb != alter {
			if err := undo(o); err != nil {
				return kept, err
			}
		}
	}
	return kept, err
}

// altered are the inodes whose metadata is set in place.
func (r *record) altered() map[uint64]bool {
	inos := map[uint64]bool{}
	for _, o := range r.ops {
		if o.verb == alter {
			inos[o.old.ino] = true
		}
	}
	return inos
}

// endJournal removes a journal, or puts it out of the way of Recover.
func endJournal(ctx context.Context, path string, left bool) error {
	if err := fault.Point(ctx, "remove the journal"); err != nil {
		return err
	}
	if left {
		return os.Rename(path, strings.TrimSuffix(path, filepath.Ext(path))+suffixLeft)
	}
	return os.Remove(path)
}

func (r *record) removeStages(ctx context.Context, real *dirs) error {
	for _, s := range r.stages {
		if err := fault.Point(ctx, "remove a stage"); err != nil {
			return err
		}
		if err := s.remove(real); err != nil {
			return err
		}
	}
	return nil
}

// syncAll waits until the filesystems of the target have what was done: after
// the journal nothing tells what was not.
func (r *record) syncAll(ctx context.Context, real *dirs) error {
	if err := fault.Point(ctx, "sync before the journal goes"); err != nil {
		return err
	}
	synced := map[uint64]bool{}
	sync := func(dir *os.File) error {
		st, err := vfs.Lstat(int(dir.Fd()), "")
		if err != nil || synced[st.Dev] {
			return err
		}
		synced[st.Dev] = true
		f, err := vfs.OpenDir(int(dir.Fd()), ".")
		if err != nil {
			return err
		}
		defer f.Close()
		if err := vfs.SyncFS(int(f.Fd())); err != nil {
			return &os.PathError{Op: "syncfs", Path: r.path, Err: err}
		}
		return nil
	}
	err := sync(real.root)
	for _, s := range r.stages {
		if err == nil {
			err = s.in(real, sync)
		}
	}
	return err
}

// finishCommitted drops what a committed promotion displaced.
func (r *record) finishCommitted(ctx context.Context, real *dirs, journal string) error {
	if err := r.removeStages(ctx, real); err != nil {
		return err
	}
	for _, pl := range r.places {
		if err := r.finalTime(real, pl); err != nil {
			return err
		}
	}
	if err := r.syncAll(ctx, real); err != nil {
		return err
	}
	return endJournal(ctx, journal, false)
}

// finalTime gives a directory the time it should have, which removing a stage
// has changed: the one of the changes, or the old one where no name changed.
func (r *record) finalTime(real *dirs, pl *place) error {
	t, set := pl.mtime, !pl.names
	for _, o := range r.ops {
		if o.verb == alter && o.path == pl.path && o.after.what&diff.Time != 0 {
			t, set = o.after.mtime, true
		}
	}
	if !set {
		return nil
	}
	dir, err := pl.open(real)
	if err != nil || dir == nil {
		return err
	}
	return setOldTime(dir, t)
}

// backOne undoes one op. false: others have changed what it left.
func (r *record) backOne(real *dirs, o *op) (bool, error) {
	if o.verb == alter {
		return true, backAlter(real, o)
	}
	s := r.stages[o.stage]
	if s.dir == nil {
		return true, nil // never made, or removed: nothing is in it
	}
	dir, name, err := real.at(o.path)
	if err != nil && !missing(err) {
		return false, err
	}
	if ok, err := unravel(o, s.dir, dir, name); err != nil || !ok {
		return false, err
	}
	var here, there *vfs.Stat // at the path, and in the stage
	if dir != nil {
		if here, err = statOrNil(dir, name); err != nil {
			return false, err
		}
	}
	if there, err = statOrNil(s.dir, o.name); err != nil {
		return false, err
	}
	if o.verb == swap && there == nil && here != nil && o.old.sameNode(here) {
		return true, fixMode(dir, name, o.old) // it is back already, and its stage was being removed
	}
	staged := there != nil && o.verb != drop && o.new.sameNode(there)
	if staged || there == nil && o.verb == drop || there == nil && here == nil && o.verb == put {
		if here != nil && o.old.sameNode(here) {
			return true, fixMode(dir, name, o.old)
		}
		return true, nil // it was not done
	}
	if dir == nil {
		return false, nil
	}
	return r.undo(o, s.dir, dir, name, here)
}

// undo moves what an op moved back.
func (r *record) undo(o *op, stage, dir *os.File, name string, here *vfs.Stat) (bool, error) {
	var err error
	switch {
	case o.verb == drop:
		if here != nil {
			return false, nil
		}
		err = intoPlace(stage, o.name, dir, name)
	case here == nil || !o.new.is(here) || changedBeneath(dir, name, o, nil):
		return false, nil
	case o.verb == put:
		err = intoStage(dir, name, stage, o.name)
	default:
		err = exchange(stage, o.name, dir, name)
	}
	if missing(err) || errors.Is(err, unix.EEXIST) {
		return false, nil // somebody was faster
	}
	if err != nil {
		return false, err
	}
	if o.verb == drop {
		return true, fixMode(dir, name, o.old)
	}
	// What came back must be ours, or somebody changed it in this instant.
	st, err := statOrNil(stage, o.name)
	if err != nil {
		return false, err
	}
	if st == nil || !o.new.is(st) || changedBeneath(stage, o.name, o, nil) {
		if o.verb == put {
			return false, intoPlace(stage, o.name, dir, name)
		}
		return false, exchange(stage, o.name, dir, name)
	}
	if o.verb == swap {
		return true, fixMode(dir, name, o.old)
	}
	return true, nil
}

func changedBeneath(in *os.File, name string, o *op, altered map[uint64]bool) bool {
	return o.new.mode&unix.S_IFMT == unix.S_IFDIR && unchanged(in, name, o.path, o.news, altered) != nil
}

func statOrNil(dir *os.File, name string) (*vfs.Stat, error) {
	st, err := vfs.Lstat(int(dir.Fd()), name)
	if missing(err) {
		return nil, nil
	}
	return &st, err
}

// backAlter restores metadata, of the very node, and its time only where the
// content is what it was.
func backAlter(real *dirs, o *op) error {
	dir, name, err := real.at(o.path)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	node, err := openNode(dir, name)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer node.Close()
	st, err := vfs.Lstat(int(node.Fd()), "")
	if err != nil || !o.old.sameNode(&st) {
		return err
	}
	m := o.before
	if st.IsRegular() && st.Size != o.old.size {
		m.what &^= diff.Time
	}
	return m.set(node)
}

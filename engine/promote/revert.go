package promote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// revert reverts a promotion that failed with cause. It returns cause, joined with the error if the revert is
// incomplete.
func (w *work) revert(ctx context.Context, cause error) error {
	if w.journal == nil {
		return cause
	}
	foreign, err := w.record.revert(context.WithoutCancel(ctx), &w.real, w.journal.Name())
	if err == nil && len(foreign) == 0 {
		return cause
	}
	if err != nil {
		err = fmt.Errorf("and the revert is incomplete; the next command continues it: %w", err)
	} else {
		var left pathlist.List
		for _, path := range foreign {
			left.Add(path, "changed by another program meanwhile; left as it is")
		}
		err = fmt.Errorf("%s (the old versions are in %s)", &left, w.stagePaths())
	}
	kind := errs.KindOf(cause)
	if kind == nil {
		kind = kindOf(cause)
	}
	return &errs.Error{Op: doing, Path: w.t.Path, Kind: kind, Err: plain(fmt.Errorf("%w; %w", cause, err))}
}

// stagePaths lists the paths of the directories with a promotion's old versions, for messages.
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

// revert reverts a promotion from whatever state it is in, and removes its journal and its stages, the
// private directories with old and new versions. It looks where the inodes are to decide each step, so it may
// be killed and repeated. foreign lists paths that other programs changed since: they stay as they are, and
// their old versions stay in the stage.
func (r *record) revert(ctx context.Context, real *nodes.Dirs, journal string) (foreign []string, err error) {
	if foreign, err = r.revertReady(ctx, real); err == nil {
		err = r.endRevert(ctx, real, journal, len(foreign) > 0)
	}
	return foreign, err
}

// revertReady reverts all steps of a promotion, if its journal is complete: before that, none was done. foreign lists
// paths that other programs changed since.
func (r *record) revertReady(ctx context.Context, real *nodes.Dirs) (foreign []string, err error) {
	if r.ready {
		if foreign, err = r.revertAll(ctx, real); err == nil {
			var late []string
			late, err = r.returnLate(ctx, real)
			foreign = append(foreign, late...)
		}
	}
	slices.Sort(foreign)
	return foreign, err
}

// returnLate looks once more at the new versions that revertAll has moved into the stages: a program that had one open
// may have written to it since. It moves such a version back to its path in the real tree, unless the path has changed as
// well, and returns these paths.
func (r *record) returnLate(ctx context.Context, real *nodes.Dirs) (late []string, err error) {
	if err := fault.Point(ctx, "look for late writes"); err != nil {
		return nil, err
	}
	time.Sleep(time.Millisecond) // most programs write as soon as they have opened a file
	altered := r.altered()
	for _, o := range r.ops {
		if !o.movedBack { // or only by an earlier, killed revert, which may have removed a part of the stage
			continue
		}
		stage := r.stages[o.stage].dir
		st, err := nodes.StatOrNil(stage, o.name)
		if err != nil {
			return late, at(o.path, err)
		}
		if st == nil || !o.new.SameNode(st) || altered.isReverted(o.new, st) && !treeChanged(stage, o.name, o, altered) {
			continue
		}
		dir, name, err := real.At(o.path)
		if err == nil && o.verb == put {
			err = nodes.MoveIn(stage, o.name, dir, name)
		} else if err == nil {
			var here *vfs.Stat
			if here, err = nodes.StatOrNil(dir, name); here != nil && altered.isReverted(o.old, here) {
				err = nodes.Exchange(stage, o.name, dir, name)
			}
		}
		if err != nil && !nodes.Missing(err) && !errors.Is(err, unix.EEXIST) {
			return late, at(o.path, err)
		}
		late = append(late, o.path) // one that could not be moved stays in the stage
	}
	return late, nil
}

// endRevert ends the revert of a promotion after revertReady: it restores directories and removes the journal and the
// stages, or makes them those of a redo. left says that paths which other programs changed were not reverted, so that
// the stages stay.
func (r *record) endRevert(ctx context.Context, real *nodes.Dirs, journal string, left bool) (err error) {
	inverse := r.inverseFile(filepath.Dir(journal))
	again := exists(inverse + suffixNew)
	if !left && !again {
		err = r.removeStages(ctx, real, journal)
	}
	for _, pl := range r.dirs {
		if err == nil {
			err = fault.Point(ctx, "restore a directory")
		}
		err = errors.Join(err, pl.Restore(real))
	}
	if err == nil {
		err = r.updateStamps(real, filepath.Dir(journal))
	}
	if err == nil {
		err = r.syncAll(ctx, real)
	}
	if err == nil && again && !left {
		if err = fault.Point(ctx, "finish the inverse"); err == nil {
			err = r.finishInverse(real, inverse)
		}
	} else if err == nil && again {
		err = os.Remove(inverse + suffixNew)
	}
	if err != nil {
		return err
	}
	return endJournal(ctx, journal, left)
}

// revertAll reverts all steps of a promotion in reverse: first the metadata, from the top down, then the
// moves. foreign lists paths that other programs changed since, which stay as they are.
func (r *record) revertAll(ctx context.Context, real *nodes.Dirs) (foreign []string, err error) {
	altered := r.altered()
	undo := func(o *op) error {
		if err := fault.Point(ctx, "take back"); err != nil {
			return at(o.path, err)
		}
		ok, e := r.revertOp(real, o, altered)
		if e != nil {
			err = errors.Join(err, at(o.path, e))
		} else if !ok {
			foreign = append(foreign, o.path)
		}
		return nil
	}
	for _, o := range r.ops {
		if o.verb == alter {
			if err := undo(o); err != nil {
				return foreign, err
			}
		}
	}
	for _, pl := range slices.Backward(r.dirs) {
		if pl.Widen {
			err = errors.Join(err, pl.SetMode(real, pl.Mode|unix.S_IRWXU))
		}
	}
	for _, o := range slices.Backward(r.ops) {
		if o.verb != alter {
			if err := undo(o); err != nil {
				return foreign, err
			}
		}
	}
	return foreign, err
}

// An alterations lists, by inode, the steps of a promotion that set metadata of a real file or directory in place. The
// steps for other names (hard links) of such a file find it with the old metadata or the new.
type alterations map[uint64][]*op

// altered returns the steps of the promotion that set metadata in place.
func (r *record) altered() alterations {
	all := alterations{}
	for _, o := range r.ops {
		if o.verb == alter {
			all[o.old.Ino] = append(all[o.old.Ino], o)
		}
	}
	return all
}

// explains reports whether st describes the inode of i, and one of the steps set its metadata, which may therefore
// differ from those of i.
func (a alterations) explains(i nodes.Ident, st *vfs.Stat) bool {
	return len(a[st.Ino]) > 0 && i.SameNode(st)
}

// isReverted reports whether st describes the inode of i, with the metadata that it has once the steps are reverted.
func (a alterations) isReverted(i nodes.Ident, st *vfs.Stat) bool {
	for _, o := range a[i.Ino] {
		if o.old.BTime == i.BTime {
			i = i.With(o.before)
		}
	}
	return i.Is(st)
}

// endJournal removes the journal of a promotion that has ended. If left is true, because a revert left files
// behind, it renames the journal instead, so that Recover ignores it.
func endJournal(ctx context.Context, path string, left bool) error {
	if err := fault.Point(ctx, "remove the journal"); err != nil {
		return err
	}
	if left {
		return os.Rename(path, strings.TrimSuffix(path, filepath.Ext(path))+suffixPartial)
	}
	return os.Remove(path)
}

// removeStages removes the promotion's stages, the private directories with the old versions. If other promotions
// with a journal beside this journal use them, too, it removes only its own files there.
func (r *record) removeStages(ctx context.Context, real *nodes.Dirs, journal string) error {
	shared := r.commit && r.shared(filepath.Dir(journal))
	if shared {
		return r.removeOwn()
	}
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

// syncAll syncs the filesystems of the target, before the promotion's journal is removed: without the journal
// nothing shows that work is incomplete.
func (r *record) syncAll(ctx context.Context, real *nodes.Dirs) error {
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
	err := sync(real.Root)
	for _, s := range r.stages {
		if err == nil {
			err = s.in(real, sync)
		}
	}
	return err
}

// finishCommitted removes the old versions that a committed promotion replaced, and its journal.
func (r *record) finishCommitted(ctx context.Context, real *nodes.Dirs, journal string) error {
	if err := r.removeStages(ctx, real, journal); err != nil {
		return err
	}
	for _, pl := range r.dirs {
		if err := r.finalTime(real, pl); err != nil {
			return err
		}
	}
	if err := r.syncAll(ctx, real); err != nil {
		return err
	}
	return endJournal(ctx, journal, false)
}

// finalTime sets the modification time of a directory after a private directory of the promotion was removed
// from it, which changed the time: to the promoted time, or to the old one if no name in the directory
// changed.
func (r *record) finalTime(real *nodes.Dirs, pl *nodes.ChangedDir) error {
	t, set := pl.MTime, !pl.Names
	for _, o := range r.ops {
		if o.verb == alter && o.path == pl.Path && o.after.What&diff.Time != 0 {
			t, set = o.after.MTime, true
		}
	}
	if !set {
		return nil
	}
	dir, err := pl.Open(real)
	if err != nil || dir == nil {
		return err
	}
	return nodes.SetOldTime(dir, t)
}

// revertOp brings the path of one step of a promotion back to its old state. It returns false, and changes
// nothing, if another program changed the step's result. altered are the promotion's steps that set metadata, all
// reverted before the first move.
func (r *record) revertOp(real *nodes.Dirs, o *op, altered alterations) (bool, error) {
	if o.verb == alter {
		return true, revertMetadata(real, o)
	}
	s := r.stages[o.stage]
	if s.dir == nil {
		return true, nil // the stage was never made or is removed: nothing was moved
	}
	dir, name, err := real.At(o.path)
	if err != nil && !nodes.Missing(err) {
		return false, err
	}
	if ok, err := nodes.RepairMove(s.dir, o.name, dir, name, o.verb == put); err != nil || !ok {
		return false, err
	}
	var here, there *vfs.Stat // at the path; in the stage
	if dir != nil {
		if here, err = nodes.StatOrNil(dir, name); err != nil {
			return false, err
		}
	}
	if there, err = nodes.StatOrNil(s.dir, o.name); err != nil {
		return false, err
	}
	restored := here != nil && o.old.SameNode(here)
	if o.verb == swap && there == nil && restored || o.notMoved(here, there) {
		if restored {
			return true, nodes.RestoreMode(dir, name, o.old)
		}
		return true, nil
	}
	if dir == nil {
		return false, nil
	}
	return moveBack(o, s.dir, dir, name, here, altered)
}

// notMoved reports whether the step's move between stage and real tree has not happened, or is reverted
// already. here is the node at its path and there the node in its stage, the private directory of the
// promotion; nil for none.
func (o *op) notMoved(here, there *vfs.Stat) bool {
	if there == nil {
		return o.verb == drop || here == nil && o.verb == put
	}
	return o.verb != drop && o.new.SameNode(there)
}

// moveBack moves the old node of a promotion's step from the private directory stage back to name in the real
// directory dir, and the new node out. here is the node there now, and altered as in revertOp. It returns false if
// another program changed the path.
func moveBack(o *op, stage, dir *os.File, name string, here *vfs.Stat, altered alterations) (bool, error) {
	var err error
	switch {
	case o.verb == drop:
		if here != nil {
			return false, nil
		}
		err = nodes.MoveIn(stage, o.name, dir, name)
	case here == nil || !altered.isReverted(o.new, here) || treeChanged(dir, name, o, altered):
		return false, nil
	case o.verb == put:
		err = nodes.MoveOut(dir, name, stage, o.name)
	default:
		err = nodes.Exchange(stage, o.name, dir, name)
	}
	if nodes.Missing(err) || errors.Is(err, unix.EEXIST) {
		return false, nil // another program was faster
	}
	if err != nil {
		return false, err
	}
	if o.verb == drop {
		return true, nodes.RestoreMode(dir, name, o.old)
	}
	// The node that came back must be the op's result, or another program changed the path now.
	st, err := nodes.StatOrNil(stage, o.name)
	if err != nil {
		return false, err
	}
	if st == nil || !altered.isReverted(o.new, st) || treeChanged(stage, o.name, o, altered) {
		if o.verb == put {
			return false, nodes.MoveIn(stage, o.name, dir, name)
		}
		return false, nodes.Exchange(stage, o.name, dir, name)
	}
	if o.movedBack = true; o.verb == swap {
		return true, nodes.RestoreMode(dir, name, o.old)
	}
	return true, nil
}

func treeChanged(in *os.File, name string, o *op, altered alterations) bool {
	return o.new.Mode&unix.S_IFMT == unix.S_IFDIR && unchanged(in, name, o.path, o.newTree, altered.isReverted) != nil
}

// revertMetadata restores the metadata that a real node had before the promotion's step o, if it is still the
// same inode; the time only if the size is the old one.
func revertMetadata(real *nodes.Dirs, o *op) error {
	dir, name, err := real.At(o.path)
	if nodes.Missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	node, err := nodes.Open(dir, name)
	if nodes.Missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer node.Close()
	st, err := vfs.Lstat(int(node.Fd()), "")
	if err != nil || !o.old.SameNode(&st) {
		return err
	}
	m := o.before
	if st.IsRegular() && st.Size != o.old.Size {
		m.What &^= diff.Time
	}
	return m.Set(node)
}

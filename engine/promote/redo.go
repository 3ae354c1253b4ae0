package promote

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/promote/journalfile"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Redo does the promotion id again that [UndoWith] reverted. That leaves the new versions of files beside the target,
// and a journal in stateDir whose undo is the redo. It uses Same and DryRun of the options. Errors: those of Undo.
func Redo(ctx context.Context, stateDir, id string, o UndoOptions) (Recovery, error) {
	r, err := takeBack(ctx, stateDir, id, suffixRedo, UndoOptions{Same: o.Same, DryRun: o.DryRun})
	var refused *errs.Error
	if errors.As(err, &refused) && refused.Op == "undoing" {
		refused.Op = "doing again"
	}
	return r, err
}

// prepareInverse returns the promotion by which an undo of r can itself be undone; nil if r is of an old format, which
// lacks what that needs. It writes the journal of it, before r is reverted, for a redo; finishInverse completes the
// journal afterwards. It writes none if no redo will be possible: when is zero, or r is a temporary step of its caller
// ([Options].Temporary), or the disk is full.
func (r *record) prepareInverse(real *nodes.Dirs, stateDir string, when time.Time) (*record, error) {
	path := r.inverseFile(stateDir) + suffixNew
	if r.version == firstVersion {
		return nil, removeIfThere(path)
	}
	inverse, err := r.inverse(real, when)
	if err != nil || when.IsZero() && r.undone.IsZero() || r.retain != retainHistory {
		return inverse, errors.Join(err, removeIfThere(path))
	}
	err = writeWhole(path, inverse)
	if errors.Is(err, unix.ENOSPC) {
		err = removeIfThere(path)
	}
	return inverse, err
}

// inverse returns the promotion by which an undo of r at the time when can itself be undone. Nothing is reverted yet.
func (r *record) inverse(real *nodes.Dirs, when time.Time) (*record, error) {
	inv := *r
	inv.undone, inv.ops, inv.dirs = when, nil, nil
	if !r.undone.IsZero() {
		inv.undone = time.Time{}
	}
	for _, pl := range r.dirs {
		now := *pl
		if dir, err := pl.Open(real); err != nil {
			return nil, at(pl.Path, err)
		} else if dir != nil && pl.Names {
			if err := now.Look(dir); err != nil {
				return nil, at(pl.Path, err)
			}
		}
		inv.dirs = append(inv.dirs, &now)
	}
	for _, o := range slices.Backward(r.ops) { // the order matters for nested paths
		i, err := r.inverseOp(o)
		if err != nil {
			return nil, at(o.path, err)
		}
		inv.ops = append(inv.ops, i)
	}
	return &inv, nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !nodes.Missing(err) {
		return err
	}
	return nil
}

// inverseFile returns the path of the journal that exists after the promotion r was reverted: for a redo or,
// if r is a redo, for an undo.
func (r *record) inverseFile(stateDir string) string {
	if r.undone.IsZero() {
		return filepath.Join(stateDir, r.id+suffixRedo)
	}
	return filepath.Join(stateDir, r.id+suffixUndo)
}

// inverseOp returns the step, for the journal of a redo, that does the step o of a promotion again after o
// was reverted.
func (r *record) inverseOp(o *op) (*op, error) {
	i := &op{verb: o.verb, path: o.path, stage: o.stage, name: o.name, old: o.new, new: o.old, oldCTime: journalfile.Timestamp(r.stamps[o.path].CTime)}
	switch o.verb {
	case alter:
		i.new, i.old, i.before, i.after = nodes.Ident{}, o.old.With(o.after), o.after, o.before
	case put:
		i.verb = drop
	case drop:
		i.verb = put
	}
	if o.verb == put || o.verb == alter || o.old.Mode&unix.S_IFMT != unix.S_IFDIR {
		return i, nil
	}
	stage := r.stages[o.stage].dir // checkUndo has found the old version there
	dir, err := nodes.Open(stage, o.name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	i.newTree = map[string]nodes.Ident{}
	return i, walk(dir, "", func(rel string, in *os.File, name string) error {
		st, err := vfs.Lstat(int(in.Fd()), name)
		i.newTree[rel] = nodes.IdentOf(&st)
		return err
	})
}

// finishInverse completes the journal for a redo of r, which prepareInverse has written to path + ".new": it
// adds the stamps (inode and change time) of the restored files and renames the journal to path.
func (r *record) finishInverse(real *nodes.Dirs, path string) error {
	inv, err := readJournal(path + suffixNew)
	if err != nil {
		return err
	}
	stamps := r.oldStamps(real)
	for _, o := range inv.ops {
		for rel := range o.newTree {
			addStamp(stamps, real, nodes.Join(o.path, rel))
		}
	}
	if err := appendTo(path+suffixNew, stampLines(stamps)); err != nil {
		return err
	}
	return errors.Join(os.Rename(path+suffixNew, path), vfs.SyncDir(filepath.Dir(path)))
}

// exists reports whether the file at path, such as a journal in the state directory, exists.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// writeWhole writes the whole journal of the committed promotion r to path, and syncs it.
func writeWhole(path string, r *record) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return journalfile.Append(f, slices.Concat(r.header(), r.body(), stampLines(r.stamps), commitLine()))
}

// part returns the steps of the promotion r that take selects as a promotion with an id of its own, whose old
// versions stay in the same directories; or r if take selects all. It changes nothing. ErrConflict: only some
// of the names (hard links) of a file are selected.
func (r *record) part(take func(path string) bool) (*record, error) {
	part := *r
	part.id, part.ops, part.count = newID(), nil, 0
	rest := map[uint64]string{} // the names of files
	dirs, own := map[string]bool{}, map[string]bool{}
	for _, o := range r.ops {
		dir, _ := diff.Split(o.path)
		if !take(o.path) {
			o.files(func(ino uint64) { rest[ino] = o.path })
			continue
		}
		part.ops, own[o.path] = append(part.ops, o), true
		dirs[dir] = dirs[dir] || o.verb != alter
		if o.verb != alter || o.after.What != diff.Time || o.old.Mode&unix.S_IFMT != unix.S_IFDIR {
			part.count += 1 + len(o.newTree)
		}
	}
	if len(part.ops) == len(r.ops) {
		return r, nil
	}
	for _, o := range part.ops {
		other := ""
		o.files(func(ino uint64) { other = cmp.Or(other, rest[ino]) })
		if other != "" {
			return nil, &errs.Error{Op: "undoing", Path: pathlist.Printable(o.path), Kind: errs.ErrConflict, Err: errors.New("it is the same file as " + pathlist.Printable(other) + ", which is not to be undone")}
		}
	}
	part.stamps = maps.Clone(r.stamps)
	maps.DeleteFunc(part.stamps, func(path string, _ Stamp) bool {
		if dirs[path] {
			return false
		}
		for path != "." && !own[path] {
			path, _ = diff.Split(path)
		}
		return !own[path]
	})
	part.dirs = slices.DeleteFunc(slices.Clone(r.dirs), func(pl *nodes.ChangedDir) bool { return !dirs[pl.Path] })
	return &part, nil
}

// separate makes r, a part of a promotion, a promotion that can be undone alone, and returns its journal. If
// it is killed, Recover completes it.
func (r *record) separate(stateDir string) (string, error) {
	journal := filepath.Join(stateDir, r.id+suffixSplit)
	if err := writeWhole(journal, r); err != nil {
		return "", errors.Join(err, os.Remove(journal))
	}
	if err := vfs.SyncDir(stateDir); err != nil {
		return "", err
	}
	return r.endSeparation(journal)
}

// endSeparation completes separate, which has written a journal for r, a part of a promotion that is to be
// undone alone.
func (r *record) endSeparation(journal string) (string, error) {
	if err := r.takeOut(filepath.Dir(journal)); err != nil {
		return "", err
	}
	undo := withSuffix(journal, suffixUndo)
	return undo, os.Rename(journal, undo)
}

// files calls f with the inode number of each file that this step of a promotion put in place or changed. An
// undo of the step moves these files or sets their metadata, which changes their change times under every
// hard link.
func (o *op) files(f func(ino uint64)) {
	each := func(i nodes.Ident) {
		if i.Mode&unix.S_IFMT != unix.S_IFDIR && i.Ino != 0 {
			f(i.Ino)
		}
	}
	each(o.new)
	if o.verb == alter {
		each(o.old)
	}
	for _, i := range o.newTree {
		each(i)
	}
}

// takeOut removes the steps of r from the journal of the promotion to which they belonged, after separate
// made them a promotion of their own. It may be repeated.
func (r *record) takeOut(stateDir string) error {
	names, err := journalfile.Names(stateDir, suffixUndo)
	if err != nil {
		return err
	}
	mine := map[string]verb{}
	for _, o := range r.ops {
		mine[o.path] = o.verb
	}
	for _, name := range names {
		path := filepath.Join(stateDir, name)
		if head, err := readHeader(path); err != nil || head.group != r.group || head.path != r.path || !head.sharesStage(r) {
			continue
		}
		from, err := readJournal(path)
		if err != nil {
			return err
		}
		ops := slices.DeleteFunc(slices.Clone(from.ops), func(o *op) bool { return mine[o.path] == o.verb })
		if len(ops) == len(from.ops) {
			continue
		}
		from.ops, from.count = ops, max(0, from.count-r.count)
		if err := writeWhole(path+suffixNew, from); err != nil {
			return err
		}
		return errors.Join(os.Rename(path+suffixNew, path), vfs.SyncDir(stateDir))
	}
	return nil
}

func (r *record) sharesStage(other *record) bool {
	return slices.ContainsFunc(r.stages, func(s *stage) bool {
		return slices.ContainsFunc(other.stages, func(x *stage) bool { return s.name == x.name })
	})
}

// shared reports whether another promotion in the state directory has files in one of the stages of r, the
// directories with its old versions. A promotion whose journal cannot be read counts as one that has.
func (r *record) shared(stateDir string) bool {
	names, err := journalfile.Names(stateDir, suffixUndo, suffixRedo, suffixUndoing, suffixSplit, suffixDropping)
	return err != nil || slices.ContainsFunc(names, func(name string) bool {
		if strings.TrimSuffix(name, filepath.Ext(name)) == r.id {
			return false
		}
		other, err := readHeader(filepath.Join(stateDir, name))
		return err != nil && !errors.Is(err, os.ErrNotExist) || err == nil && other.sharesStage(r)
	})
}

// removeOwn removes the old versions of r from its stages, private directories in which other promotions may
// have files, too; those stay.
func (r *record) removeOwn() error {
	for _, o := range r.ops {
		if o.verb == alter || r.stages[o.stage].dir == nil {
			continue
		}
		dir := r.stages[o.stage].dir
		st, err := nodes.StatOrNil(dir, o.name)
		if err == nil {
			err = nodes.Remove(dir, o.name, st)
		}
		if err != nil {
			return at(o.path, err)
		}
	}
	return nil
}

package promote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// rollBack does the steps of r again that an undo of r has reverted, because the undo cannot revert the others. The
// promotion can be undone again afterwards; if r is a redo, be redone again. inverse undoes the undo. changed are the
// paths because of which the undo was given up. left are those that other programs changed in the midst of it: they
// stay as they are. After an error, Recover continues with the undo.
func (r *record) rollBack(ctx context.Context, real *nodes.Dirs, journal string, inverse *record, changed []string) (left []string, stamps map[string]Stamp, err error) {
	left, err = inverse.revertAll(ctx, real)
	for _, pl := range inverse.dirs {
		err = errors.Join(err, pl.Restore(real))
	}
	if err != nil {
		return nil, nil, err
	}
	stateDir := filepath.Dir(journal)
	stamps = inverse.oldStamps(real)
	for _, o := range r.ops {
		if slices.Contains(changed, o.path) {
			continue
		}
		for rel := range o.newTree {
			addStamp(stamps, real, nodes.Join(o.path, rel))
		}
	}
	if err := inverse.updateStamps(real, stateDir); err != nil {
		return nil, nil, err
	}
	whole := *r
	whole.stamps = maps.Clone(r.stamps)
	maps.Copy(whole.stamps, stamps)
	if err := writeWhole(journal+suffixNew, &whole); err != nil {
		return nil, nil, err
	}
	if err := r.syncAll(ctx, real); err != nil {
		return nil, nil, err
	}
	suffix := suffixUndo
	if !r.undone.IsZero() {
		suffix = suffixRedo
	}
	if err := errors.Join(os.Rename(journal+suffixNew, journal), os.Rename(journal, withSuffix(journal, suffix)), vfs.SyncDir(stateDir)); err != nil {
		return nil, nil, err
	}
	return left, stamps, removeIfThere(r.inverseFile(stateDir) + suffixNew)
}

// gaveUp returns the error of an undo that could not revert some steps of r because of cause, or because other
// programs changed the paths changed. If rolledBack is nil, the undo was rolled back, except for the paths left.
func (r *record) gaveUp(changed, left []string, cause, rolledBack error) error {
	var list pathlist.List
	for _, path := range changed {
		list.Add(path, "changed by another program meanwhile")
	}
	err, kind := cause, errs.ErrDrifted
	if cause != nil {
		kind = kindOf(cause)
	} else {
		err = errors.New(list.String())
	}
	switch {
	case rolledBack != nil:
		kind = kindOf(rolledBack)
		err = fmt.Errorf("%w; it is incomplete, and the next command continues it: %w", err, rolledBack)
	case len(left) > 0:
		list = pathlist.List{}
		for _, path := range left {
			list.Add(path, "changed by another program meanwhile, and left as it is")
		}
		err = fmt.Errorf("%w; all other files are as they were, but %s (the other versions are in %s)", err, &list, r.stagePaths())
	default:
		err = fmt.Errorf("%w; all files are as they were", err)
	}
	return &errs.Error{Op: doing, Path: r.path, Kind: kind, Err: plain(err)}
}

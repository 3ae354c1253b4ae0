package engine

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A CheckedTree is the result of checking the stored data of one tree of a sandbox.
type CheckedTree struct {
	Path    string
	Backend string
	// Whole is set if the backend checked all of its data, not only its records.
	Whole    bool
	Problems []snapshot.Problem
}

// Undamaged reports whether the check of the tree found no damage, or all of it was repaired.
func (t *CheckedTree) Undamaged() bool {
	for _, p := range t.Problems {
		if !p.Mended {
			return false
		}
	}
	return true
}

// Check verifies the data that backends store for a sandbox in which nothing runs: that each tree's fork,
// base and snapshots exist and, if the backend can, all their content; and the originals of its changed files.
// repair also repairs what [snapshot.Checker] can repair, and puts damaged originals aside. Errors:
// errs.ErrNotFound, ErrBusy; ErrCorrupt if the sandbox's record in the catalogue is damaged and repair is not set, or
// cannot restore it from its copy. What was wrong with a restored record is a problem of the first tree.
func (e *Engine) Check(ctx context.Context, name string, repair bool) ([]CheckedTree, error) {
	var damage error
	if repair {
		var err error
		if damage, err = e.cat.Restore(ctx, name); err != nil {
			return nil, err
		}
	}
	h, err := e.Supervise.Hold(ctx, name, "checking")
	if err != nil {
		return nil, err
	}
	defer h.Release()
	// Syncing the tree may be what fails.
	if err := e.Supervise.EndIdleSupervisor(ctx, h, "checking"); err != nil {
		return nil, err
	}
	trees, sound := []CheckedTree{}, true
	for i, t := range h.Trees {
		found, err := e.checkTree(ctx, h.Record, i, repair)
		if err != nil {
			return trees, err
		}
		found.Path, found.Backend = t.Path, t.Driver
		if damage != nil && i == 0 {
			found.Problems = append(found.Problems, snapshot.Problem{
				Where: filepath.Join(e.cat.Path(name), catalog.RecordFile), What: damage.Error() + "; it is restored from its copy, with the policy that this has (snapfs show " + name + ")", Mended: true,
			})
		}
		trees, sound = append(trees, found), sound && found.Undamaged()
	}
	if t := treeOf(trees, h.Workspace); t != nil {
		more, err := e.Baseline.Check(h.Record, repair)
		t.Problems = append(t.Problems, more...)
		if err != nil {
			return trees, err
		}
		sound = sound && t.Undamaged()
	}
	if sound {
		err = e.Supervise.Sync(ctx, h)
	}
	return trees, err
}

// treeOf returns the innermost of the trees that contains path, or nil.
func treeOf(trees []CheckedTree, path string) (best *CheckedTree) {
	for i := range trees {
		t := &trees[i]
		rel, err := filepath.Rel(t.Path, path)
		if err == nil && filepath.IsLocal(rel) && (best == nil || len(t.Path) > len(best.Path)) {
			best = t
		}
	}
	return best
}

// checkTree verifies the stored data of tree number i of a sandbox: that its backend has the fork, the base
// and the snapshots that rec lists. If the backend is a [snapshot.Checker], it also checks their content, and
// repairs it if repair is set.
func (e *Engine) checkTree(ctx context.Context, rec *catalog.Record, i int, repair bool) (found CheckedTree, err error) {
	t := rec.Trees[i]
	b, err := e.Host.BackendOf(ctx, t)
	if err != nil {
		return found, err
	}
	if found.Problems, err = checkRecords(ctx, b, rec, i); err != nil {
		return found, err
	}
	if repair {
		restoreFork(ctx, b, t, found.Problems)
	}
	c, ok := b.(snapshot.Checker)
	if !ok {
		return found, nil
	}
	found.Whole = true
	more, err := c.Check(ctx, t.Fork, repair)
	if isDamage(err) && len(found.Problems) > 0 {
		err = nil // it is reported already
	}
	found.Problems = append(found.Problems, more...)
	return found, err
}

// A forkRestorer is a backend that stores a small record for each fork and can write it again if it is damaged.
type forkRestorer interface {
	// RestoreFork writes the record of the fork again. base is the snapshot from which the fork was made. It changes no
	// data of the fork, and after an error nothing has changed.
	RestoreFork(ctx context.Context, fork snapshot.ForkID, base snapshot.ID) error
}

// restoreFork repairs the record of the fork of the tree t if the backend b cannot look up the fork, which then is the
// first of problems, the result of checkRecords. It notes in that problem whether it could, or why not.
func restoreFork(ctx context.Context, b snapshot.Backend, t catalog.Tree, problems []snapshot.Problem) {
	r, ok := b.(forkRestorer)
	if !ok || len(problems) == 0 {
		return
	}
	if _, err := b.LookupFork(ctx, t.Fork); err == nil {
		return // the record is sound: the problem is another one
	}
	err := r.RestoreFork(ctx, t.Fork, t.Base)
	if err == nil {
		_, err = b.LookupFork(ctx, t.Fork)
	}
	if problems[0].Mended = err == nil; err != nil {
		problems[0].What += "; " + err.Error()
	}
}

// checkRecords verifies that a backend has the fork, the base and the snapshots that rec lists for tree
// number i. It returns a problem for each that is missing or damaged.
func checkRecords(ctx context.Context, b snapshot.Backend, rec *catalog.Record, i int) (found []snapshot.Problem, err error) {
	look := func(what string, err error) error {
		if !isDamage(err) && !errors.Is(err, errs.ErrDenied) { // a file without the backend's mark is denied
			return err
		}
		p := snapshot.Problem{Where: what, What: err.Error()}
		var at *errs.Error
		if errors.As(err, &at) && at.Path != "" {
			p.Where = at.Path
		}
		found = append(found, p)
		return nil
	}
	t := rec.Trees[i]
	if _, err := b.LookupFork(ctx, t.Fork); look("the fork "+string(t.Fork), err) != nil {
		return nil, err
	}
	if _, err := b.Lookup(ctx, t.Base); look("the base "+string(t.Base), err) != nil {
		return nil, err
	}
	for _, m := range rec.Snapshots {
		if i < len(m.IDs) {
			if _, err := b.Lookup(ctx, m.IDs[i]); look("the state "+m.Name, err) != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// isDamage reports whether err means that a fork or snapshot which the catalogue lists is missing or damaged,
// as opposed to a failure of the check.
func isDamage(err error) bool {
	return errors.Is(err, errs.ErrCorrupt) || errors.Is(err, errs.ErrNotFound)
}

package engine

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// CheckedTree is what was found on looking at what is kept of a tree of a sandbox.
type CheckedTree struct {
	Path    string
	Backend string
	// Whole: the backend looked at all that it keeps, not at its records alone.
	Whole    bool
	Problems []snapshot.Problem
}

// Sound reports whether nothing is wrong with it any more.
func (t *CheckedTree) Sound() bool {
	for _, p := range t.Problems {
		if !p.Mended {
			return false
		}
	}
	return true
}

// Check looks at what the backends keep of a sandbox, in which nothing may run: at their
// records of it and of its states, and, where they can, at all that its trees are made of.
// With repair what can be is mended, as [snapshot.Checker] says. Errors:
// errs.ErrNotFound, ErrBusy; ErrCorrupt for a record of the sandbox itself, which is
// left alone.
func (e *Engine) Check(ctx context.Context, name string, repair bool) ([]CheckedTree, error) {
	h, err := e.Supervise.Hold(ctx, name, "checking")
	if err != nil {
		return nil, err
	}
	defer h.Release()
	// To settle it is what may not work.
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
		trees, sound = append(trees, found), sound && found.Sound()
	}
	if sound {
		err = e.Supervise.Sync(ctx, h)
	}
	return trees, err
}

// checkTree looks at one tree of a sandbox.
func (e *Engine) checkTree(ctx context.Context, rec *catalog.Record, i int, repair bool) (found CheckedTree, err error) {
	t := rec.Trees[i]
	b, err := e.Host.BackendOf(ctx, t)
	if err != nil {
		return found, err
	}
	if found.Problems, err = checkRecords(ctx, b, rec, i); err != nil {
		return found, err
	}
	c, ok := b.(snapshot.Checker)
	if !ok {
		return found, nil
	}
	found.Whole = true
	more, err := c.Check(ctx, t.Fork, repair)
	if isDamage(err) && len(found.Problems) > 0 {
		err = nil // it is told already
	}
	found.Problems = append(found.Problems, more...)
	return found, err
}

// checkRecords looks whether a backend knows a tree of a sandbox, its base and its states.
func checkRecords(ctx context.Context, b snapshot.Backend, rec *catalog.Record, i int) (found []snapshot.Problem, err error) {
	look := func(what string, err error) error {
		if !isDamage(err) {
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

// isDamage: what a record names is not there, or is not as it should be.
func isDamage(err error) bool {
	return errors.Is(err, errs.ErrCorrupt) || errors.Is(err, errs.ErrNotFound)
}

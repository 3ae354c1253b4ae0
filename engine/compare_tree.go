package engine

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/isolate"
)

// compareStates compares one tree in two states that need have nothing in
// common but its path. After an error, and without changes, nothing is open.
func (e *Engine) compareStates(ctx context.Context, old, new treeState) (Part, error) {
	touches, walk, err := touchedByEither(ctx, old, new)
	if err != nil || len(touches) == 0 && !walk {
		return Part{}, err
	}
	opt := e.optionsFor(old, new)
	left, err := openState(ctx, old)
	if err != nil {
		return Part{}, err
	}
	right, err := openState(ctx, new)
	if err != nil {
		return Part{}, errors.Join(err, left.Close())
	}
	p := Part{Root: old.tree.Path, Old: left, New: right, Tree: old.tree.Path, Taken: opt.Taken, Frozen: old.base.Frozen && new.base.Frozen}
	if walk {
		p.Changes, err = diff.Trees(ctx, left, right, opt)
	} else {
		p.Changes, err = diff.At(ctx, left, right, sequence(touches), opt)
	}
	// What was made on both sides may have got the same number by chance: that
	// tells of no rename.
	p.opt = opt
	p.opt.SameInodes = false
	if err != nil || len(p.Changes) == 0 {
		return Part{}, errors.Join(err, left.Close(), right.Close())
	}
	return p, nil
}

// touchedByEither names the places where two states may differ: what each has
// changed since its base, and where the bases differ. walk: nobody can tell.
func touchedByEither(ctx context.Context, old, new treeState) (all []snapshot.Touch, walk bool, err error) {
	for _, ask := range []func(context.Context) ([]snapshot.Touch, bool, error){
		old.touched, new.touched,
		func(ctx context.Context) ([]snapshot.Touch, bool, error) { return basesTouched(ctx, old, new) },
	} {
		touches, walk, err := ask(ctx)
		if err != nil || walk {
			return nil, walk, err
		}
		all = append(all, touches...)
	}
	return all, false, nil
}

// touched names the places that have changed since the base.
func (t *treeState) touched(ctx context.Context) ([]snapshot.Touch, bool, error) {
	switch {
	case t.real && !t.base.Frozen: // the base is the real tree
		return nil, false, nil
	case t.real:
		d, ok := t.b.(snapshot.Drifter)
		if !ok {
			return nil, true, nil
		}
		return collect(d.Drifted(ctx, t.base.Base))
	case t.id == t.base.Base:
		return nil, false, nil
	}
	return touched(ctx, t.b, pair{tree: t.tree, left: t.base.Base, right: t.id})
}

// basesTouched names the places where the bases differ. Live ones do not: both
// are the real tree.
func basesTouched(ctx context.Context, a, b treeState) ([]snapshot.Touch, bool, error) {
	switch {
	case a.real || b.real || !a.base.Frozen && !b.base.Frozen:
		return nil, false, nil
	case a.b != b.b || a.base.Frozen != b.base.Frozen:
		return nil, true, nil
	case a.base.Base == b.base.Base:
		return nil, false, nil
	}
	return touched(ctx, a.b, pair{tree: a.tree, left: a.base.Base, right: b.base.Base})
}

// optionsFor says how two states are compared. Inode numbers are told to mean
// the same where both sides grew from one tree that gives them: then what has
// not changed since before either parted from it is one file.
func (e *Engine) optionsFor(old, new treeState) diff.Options {
	opt := diff.Options{OverlayViews: true, SameInodes: true, Taken: old.base.Taken}
	if new.base.Taken.Before(opt.Taken) {
		opt.Taken = new.base.Taken
	}
	for _, t := range []treeState{old, new} {
		facts := t.b.Facts()
		opt.OneFilesystem = opt.OneFilesystem || t.real || facts.Unit == snapshot.ByFile
		opt.SameInodes = opt.SameInodes && t.base.Frozen && facts.KeepsInodes && facts.RealInodes
	}
	if opt.Taken.IsZero() { // would trust every time
		opt.Taken = time.Unix(0, 0)
	}
	skipOld, skipNew := e.skip(old.b, old.tree.Path), e.skip(new.b, new.tree.Path)
	opt.Skip = func(path string) bool { return skipOld(path) || skipNew(path) }
	return opt
}

// openState opens a tree for reading.
func openState(ctx context.Context, t treeState) (*os.File, error) {
	if t.real {
		return os.Open(t.tree.Path)
	}
	var view snapshot.View
	if t.id == "" {
		f, err := t.b.LookupFork(ctx, t.tree.Fork)
		if err != nil {
			return nil, err
		}
		view = f.View
	} else {
		s, err := t.b.Lookup(ctx, t.id)
		if err != nil {
			return nil, err
		}
		view = s.View
	}
	dirs, err := isolate.OpenViews(ctx, []isolate.Mount{mountOf("/", view)})
	if err != nil {
		return nil, err
	}
	return dirs[0], nil
}

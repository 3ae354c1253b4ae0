package compare

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// compareStates compares two states of the tree at one path, which need not have a common base, and returns
// the parts with changes. If it returns an error or no changes, everything is closed.
func (cm *Comparer) compareStates(ctx context.Context, workspace string, old, new treeState) ([]Part, error) {
	touches, walk, err := candidatesOf(ctx, old, new)
	if err != nil || len(touches) == 0 && !walk {
		return nil, err
	}
	left, err := old.state(ctx)
	if err != nil {
		return nil, err
	}
	right, err := new.state(ctx)
	if err != nil {
		return nil, err
	}
	return cm.compareIn(workspace, old.tree.Path, touches, walk, func(at place, touches []snapshot.Candidate, walk bool) (Part, error) {
		dirs, err := at.open(ctx, left, right)
		if err != nil {
			return Part{}, err
		}
		p := Part{Root: at.dir, Old: dirs[0], New: dirs[1], Tree: old.tree.Path, Frozen: old.base.Frozen && new.base.Frozen}
		p.Opt = cm.optionsFor(old, new, at.dir)
		p.Taken = p.Opt.Taken
		p.Changes, err = p.find(ctx, touches, walk)
		// Two unrelated inodes may have the same number: that must not count as a
		// rename.
		p.Opt.SameInodes = false
		return p.closeIfEmpty(p.Lost(err))
	})
}

// candidatesOf returns the paths at which two states of a tree may differ: the changes of each state since
// its base, and those between the bases. walk is true if a backend cannot list them, so that the whole trees
// must be compared.
func candidatesOf(ctx context.Context, old, new treeState) (all []snapshot.Candidate, walk bool, err error) {
	for _, ask := range []func(context.Context) ([]snapshot.Candidate, bool, error){
		old.changed, new.changed,
		func(ctx context.Context) ([]snapshot.Candidate, bool, error) { return basesDiffer(ctx, old, new) },
	} {
		touches, walk, err := ask(ctx)
		if err != nil || walk {
			return nil, walk, err
		}
		all = append(all, touches...)
	}
	return all, false, nil
}

// changed returns the paths of t, one tree in one state, that may have changed since its base. The second
// result is true, without paths, if the backend cannot list them.
func (t *treeState) changed(ctx context.Context) ([]snapshot.Candidate, bool, error) {
	switch {
	case t.real && !t.base.Frozen: // the base is the real tree
		return nil, false, nil
	case t.real:
		d, ok := t.b.(snapshot.DriftDetector)
		if !ok {
			return nil, true, nil
		}
		return collect(ctx, d.DetectDrift(ctx, t.base.Base))
	case t.id == t.base.Base:
		return nil, false, nil
	}
	return ListChanges(ctx, t.b, Pair{Tree: t.tree, Left: t.base.Base, Right: t.id})
}

// basesDiffer returns the paths at which the bases of two states, a and b, may differ. The second result is
// true, without paths, if the backend cannot list them. Two live bases do not differ: both are the real tree.
func basesDiffer(ctx context.Context, a, b treeState) ([]snapshot.Candidate, bool, error) {
	switch {
	case a.real || b.real || !a.base.Frozen && !b.base.Frozen:
		return nil, false, nil
	case a.b != b.b || a.base.Frozen != b.base.Frozen:
		return nil, true, nil
	case a.base.Base == b.base.Base:
		return nil, false, nil
	}
	return ListChanges(ctx, a.b, Pair{Tree: a.tree, Left: a.base.Base, Right: b.base.Base})
}

// optionsFor returns the options for comparing two states of the directory dir. It allows to take equal inode
// numbers for the same file only if both states are forks of snapshots that preserve the numbers of the real
// tree.
func (cm *Comparer) optionsFor(old, new treeState, dir string) diff.Options {
	opt := diff.Options{OverlayViews: true, SameInodes: true, Taken: old.base.Taken}
	if new.base.Taken.Before(opt.Taken) {
		opt.Taken = new.base.Taken
	}
	for _, t := range []treeState{old, new} {
		facts := t.b.Facts()
		opt.OneFilesystem = opt.OneFilesystem || t.real || facts.Unit == snapshot.ByFile
		opt.SameInodes = opt.SameInodes && t.base.Frozen && facts.KeepsInodes && facts.RealInodes
	}
	if opt.Taken.IsZero() { // the zero time would trust every timestamp
		opt.Taken = time.Unix(0, 0)
	}
	skipOld, skipNew := cm.host.Skip(old.b, dir), cm.host.Skip(new.b, dir)
	opt.Skip = func(path string) bool { return skipOld(path) || skipNew(path) }
	return opt
}

// state converts t, one tree of an operand of a comparison, to the form that [place.open] opens for reading.
func (t *treeState) state(ctx context.Context) (state, error) {
	if t.real {
		return state{view: snapshot.View{Path: t.tree.Path}, real: true}, nil
	}
	view, err := ViewOf(ctx, t.b, t.tree, t.id)
	return state{b: t.b, view: view}, err
}

// TreeOptions returns the options for comparing the whole tree that contains the part p, such as the
// workspace. Its paths to skip are relative to the tree, not to p.
func (p Part) TreeOptions(e *Comparer, b snapshot.Backend) diff.Options {
	o := p.Opt
	o.Skip = e.host.Skip(b, p.Tree)
	return o
}

package reconcile

import (
	"context"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
)

// displacing runs do, which changes the given paths below root, and records for
// older sandboxes what it displaces. Without the record, the cost is a conflict
// later. sandbox is the one that is promoted. It first waits for the promotion of another
// sandbox, whose record would otherwise contain changes of this one.
func (rc *Reconciler) displacing(ctx context.Context, sandbox, root string, paths []string, do func() error) error {
	defer rc.baseline.Turn(ctx)()
	d, err := rc.baseline.Displace(sandbox, root, paths)
	derr := do()
	if err == nil {
		err = d.End()
	}
	if err != nil {
		rc.notice("what was displaced in " + root + " was not recorded: " + err.Error())
	}
	return derr
}

// applyChanges is promote.Apply on the real tree, and records what it displaces for older
// sandboxes.
func (rc *Reconciler) applyChanges(ctx context.Context, t promote.Target, from promote.Source, changes []diff.Change, o promote.Options) (r promote.Result, err error) {
	paths := each(changes, func(c diff.Change) string { return c.Path })
	err = rc.displacing(ctx, o.Sandbox, t.Path, paths, func() error {
		r, err = promote.Apply(ctx, t, from, changes, o)
		return err
	})
	return r, err
}

// undoOne is takeBack, and records what that displaces in the real tree for older sandboxes.
func (rc *Reconciler) undoOne(ctx context.Context, p promote.Promotion, o promote.UndoOptions) (r promote.Recovery, err error) {
	paths, _, _ := promote.Paths(rc.promotionsDir(), p.ID) // the undo reports the error
	err = rc.displacing(ctx, p.Sandbox, p.Path, paths, func() error {
		r, err = rc.takeBack(ctx, p, o)
		return err
	})
	return r, err
}

// takeBack is promote.UndoWith of one promotion, or promote.Redo of an undone one.
func (rc *Reconciler) takeBack(ctx context.Context, p promote.Promotion, o promote.UndoOptions) (promote.Recovery, error) {
	if p.Undone.IsZero() {
		return promote.UndoWith(ctx, rc.promotionsDir(), p.ID, o)
	}
	return promote.Redo(ctx, rc.promotionsDir(), p.ID, o)
}

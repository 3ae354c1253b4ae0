package reconcile

import (
	"context"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
)

// displacing runs do, which promotes a sandbox to the paths below root, and stores the replaced files for older
// sandboxes, whose base they are. If that fails, the cost is a conflict later. It first waits for another promotion
// to end, whose changes would otherwise mix with these.
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

// applyChanges promotes to the real tree, and stores the replaced files, which are older sandboxes' base.
func (rc *Reconciler) applyChanges(ctx context.Context, t promote.Target, from promote.Source, changes []diff.Change, o promote.Options) (r promote.Result, err error) {
	paths := each(changes, func(c diff.Change) string { return c.Path })
	err = rc.displacing(ctx, o.Sandbox, t.Path, paths, func() error {
		r, err = promote.Apply(ctx, t, from, changes, o)
		return err
	})
	return r, err
}

// undoOne undoes or redoes a promotion, and stores the files it replaces, which are older sandboxes' base.
func (rc *Reconciler) undoOne(ctx context.Context, p promote.Promotion, o promote.UndoOptions) (r promote.Recovery, err error) {
	paths, _, _ := promote.Paths(rc.promotionsDir(), p.ID) // the undo reports the error
	err = rc.displacing(ctx, p.Sandbox, p.Path, paths, func() error {
		r, err = rc.takeBack(ctx, p, o)
		return err
	})
	return r, err
}

// takeBack undoes a promotion or, if p says that it is undone, does it again. o selects the paths of an undo.
func (rc *Reconciler) takeBack(ctx context.Context, p promote.Promotion, o promote.UndoOptions) (promote.Recovery, error) {
	if p.Undone.IsZero() {
		return promote.UndoWith(ctx, rc.promotionsDir(), p.ID, o)
	}
	return promote.Redo(ctx, rc.promotionsDir(), p.ID, o)
}

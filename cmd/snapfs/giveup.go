package main

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/reconcile"
)

// A forgotten is the JSON form of `snapfs undo --forget`: the name of a promotion that can no longer be undone or, if it
// was killed, no longer be completed or reverted.
type forgotten struct {
	ID string `json:"id"`
	// GaveUp is set if the promotion was killed and waited for its target.
	GaveUp bool `json:"gave_up,omitempty"`
	// Old lists old versions of files that the killed promotion had moved out of its target, and Left the
	// directories of the promotion that stay.
	Old  []promote.OldVersion `json:"old,omitempty"`
	Left []string             `json:"left,omitempty"`
}

// forgetPromotion deletes the data for undo and redo of the promotion id, or gives it up if it was killed and waits for
// its target. It asks before it gives one up; yes is the answer.
func (a *app) forgetPromotion(ctx context.Context, e *engine.Engine, id string, yes bool) error {
	waiting := e.Reconcile.Unfinished()
	i := slices.IndexFunc(waiting, func(u reconcile.Unfinished) bool { return u.ID == id })
	if i < 0 {
		if err := e.Reconcile.ForgetUndo(ctx, id); err != nil {
			return err
		}
		return a.ui.result(forgotten{ID: id}, func(io.Writer) error { return nil })
	}
	u := waiting[i]
	a.ui.notice(u.String())
	a.ui.notice("given up, it can never be completed or reverted: " + tame(u.Target) + ", where it still exists, stays as it is, with some changes or none")
	switch {
	case yes:
	case !a.ui.interactive():
		return usageError(errors.New("giving up a killed apply needs --yes: snapfs undo --forget " + id + " --yes"))
	case !a.ui.agrees("give it up?", "forget the apply, and keep old versions of files that it had moved out", "change nothing"):
		a.ui.notice("gave up nothing")
		return nil
	}
	g, err := e.Reconcile.GiveUp(ctx, id)
	if err != nil {
		return err
	}
	return a.ui.result(forgotten{ID: id, GaveUp: true, Old: g.Old, Left: g.Left}, func(w io.Writer) error {
		for _, k := range g.Old {
			a.ui.notice("the old version of " + tame(k.Path) + " is " + tame(k.In))
		}
		for _, dir := range g.Left {
			a.ui.notice(tame(dir) + " stays; remove it if you do not need what is in it")
		}
		a.ui.notice("gave up " + id + " of " + u.Sandbox)
		return nil
	})
}

package engine

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
)

// Remove ends a sandbox's processes and removes the sandbox: its name at once, its space later. It may be
// called at any moment and, except for ErrNotFound, again. It also removes a sandbox whose catalogue entry
// cannot be read. ErrBusy: a running snapfs run made the sandbox for its command, or a promotion of it is
// unfinished and its target directory may come back.
func (e *Engine) Remove(ctx context.Context, name string) error {
	if u := e.Reconcile.UnfinishedOf(name); u != nil && !u.Gone {
		return e.Reconcile.RefuseUnfinished("removing", name, "")
	}
	read := false
	err := e.Supervise.Remove(ctx, name, func(h *catalog.Locked, intent *catalog.Intent) error {
		read = true // an error is about the sandbox's trees from here on
		return e.Sandboxes.DiscardSoon(ctx, h, intent)
	})
	if !read && (errors.Is(err, errs.ErrCorrupt) || errors.Is(err, errs.ErrNotFound) && e.cat.Claimed(name)) {
		return e.removeUnread(ctx, name)
	}
	return err
}

// removeUnread removes a sandbox whose catalogue entry cannot be read. The forks of its trees stay until the
// next garbage collection, which finds that no sandbox owns them.
func (e *Engine) removeUnread(ctx context.Context, name string) error {
	if _, err := e.Supervise.RequestEnd(ctx, &catalog.Record{Name: name}, supervise.Request{Stop: true}); err != nil {
		return err
	}
	err := e.cat.Drop(ctx, name)
	if _, unread := e.cat.Get(name); errors.Is(err, errs.ErrBusy) && unread == nil { // its supervisor has written the entry anew as it ended
		return e.Remove(ctx, name)
	}
	if err != nil {
		return err
	}
	return e.Sandboxes.SweepLater(ctx)
}

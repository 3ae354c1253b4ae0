package engine

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/engine/policy"
)

// New makes a permanent sandbox, in which nothing runs yet. Atomic: after an error or a crash the sandbox
// does not exist. Cost: constant in the size of the trees, with most backends. Errors: errs.ErrExists (the
// name), ErrNotFound and ErrNotSupported (the workspace), ErrNoSpace, ErrDenied; ErrBusy (no capacity).
func (e *Engine) New(ctx context.Context, req hostfs.Request) (*catalog.Record, error) {
	if err := policy.BoundBySite(&req.Policy); err != nil {
		return nil, err
	}
	place, err := e.Supervise.AdmitNew(ctx, req)
	if err != nil {
		return nil, err
	}
	defer e.Supervise.ReleaseSlot(place) // nothing runs in it yet
	rec, intent, err := e.Sandboxes.Create(ctx, req, false)
	if err != nil {
		return nil, err
	}
	if err := leak.StoreLabels(e.cat.Path(rec.Name), &rec.Policy); err != nil { // those that the sandbox has now, not at its first start
		derr := e.Sandboxes.Discard(context.WithoutCancel(ctx), rec)
		e.Sandboxes.EndIfGone(intent, rec, derr)
		return nil, errors.Join(err, derr)
	}
	e.Sandboxes.End(intent)
	return rec, nil
}

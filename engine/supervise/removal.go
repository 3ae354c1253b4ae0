package supervise

import (
	"context"
	"errors"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// staysTimeout is how long [Manager.Remove], after an error, waits for the lock of the sandbox that stays.
const staysTimeout = 10 * time.Second

// Remove ends every process of a sandbox as [Manager.Stop] does, locks the sandbox and calls discard, which removes it
// and releases the lock. Unless it fails, discard also takes over the intent, which ends with the removal.
//
// Meanwhile an intent in the catalogue announces the removal. A supervisor that ends while its sandbox is being removed
// does not write the sandbox's files to the disk, which takes long if there are many. After an error Remove does that,
// if the sandbox still exists; after the death of this process the next command does. Errors: those of discard,
// [Manager.Stop] and [Manager.Hold].
func (sv *Manager) Remove(ctx context.Context, name string, discard func(h *catalog.Locked, intent *catalog.Intent) error) error {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return err
	}
	intent, err := sv.sandboxes.BeginRemoval(rec)
	if err != nil {
		return err
	}
	err = sv.endAndDiscard(ctx, rec, func(h *catalog.Locked) error { return discard(h, intent) })
	if errors.Is(err, errReplaced) {
		sv.sandboxes.End(intent)
		return sv.Remove(ctx, name, discard)
	}
	if err != nil {
		return errors.Join(err, sv.syncWhatStays(ctx, rec, intent))
	}
	return nil
}

// errReplaced means that another sandbox has the name by now.
var errReplaced = errors.New("another sandbox has the name")

// endAndDiscard ends the processes of the sandbox of rec, locks it and calls discard, for [Manager.Remove], which has
// announced the removal. Errors: those of Remove, and errReplaced.
func (sv *Manager) endAndDiscard(ctx context.Context, rec *catalog.Record, discard func(h *catalog.Locked) error) error {
	if err := sv.end(ctx, rec); err != nil {
		return err
	}
	h, err := sv.Hold(ctx, rec.Name, "removing")
	if err != nil {
		return err
	}
	if h.ID != rec.ID {
		h.Release()
		return errReplaced
	}
	if _, err := sv.RequestEnd(ctx, h.Record, Request{Stop: true}); err != nil { // a supervisor that has started since
		h.Release()
		return err
	}
	return discard(h)
}

// syncWhatStays ends the intent of a removal that failed. If the sandbox still exists, and its supervisor has ended
// without a sync, it first writes the sandbox's files to the disk. It does both under the sandbox's lock, which a
// supervisor holds while it looks for the intent.
func (sv *Manager) syncWhatStays(ctx context.Context, rec *catalog.Record, intent *catalog.Intent) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), staysTimeout)
	defer cancel()
	h, err := sv.cat.Lock(ctx, rec.Name)
	if err == nil {
		defer h.Release()
	}
	defer sv.sandboxes.End(intent) // before the release
	switch {
	case errors.Is(err, errs.ErrNotFound):
		return nil
	case err != nil:
		return err
	case h.ID != rec.ID:
		return nil
	}
	return sv.SyncEnded(ctx, h)
}

// SyncEnded calls [Manager.Sync] if no process runs in the sandbox. Otherwise its supervisor will do that.
func (sv *Manager) SyncEnded(ctx context.Context, h *catalog.Locked) error {
	if h.Ephemeral || h.State != catalog.Ready {
		return nil // it belongs to a command, which is its supervisor
	}
	conn, err := sv.Dial(ctx, h.Record)
	if err != nil {
		return err
	}
	if conn != nil {
		return conn.Close()
	}
	return sv.Sync(ctx, h)
}

// beingRemoved reports whether a living process has announced the removal of a locked sandbox. The supervisor, whose
// container has ended, then leaves the sync of the sandbox to that process.
func (sv *Manager) beingRemoved(h *catalog.Locked) bool {
	return sv.cat.UnderWay(catalog.Removing, h.ID) != nil
}

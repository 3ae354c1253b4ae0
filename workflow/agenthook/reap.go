package agenthook

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/workflow/view"
)

// Reap releases the sandboxes of coding agents whose processes have ended, and removes stale views, host
// directories that show the sandboxes. Sandboxes without a change are removed; those with changes stay, for
// the person to review. It also removes the texts of previews that nobody has seen in time. It returns the
// number of sandboxes that it released. Cost: reading the record of each sandbox, twice if there are views.
func Reap(ctx context.Context, e *engine.Engine) (released int, err error) {
	var failures []error
	for _, l := range Leases(e) {
		if l.Ended || proc.Alive(l.Owner) {
			continue
		}
		if err := release(ctx, e, l); err != nil {
			failures = append(failures, err)
			continue
		}
		released++
	}
	failures = append(failures, removeExpiredPreviews(filepath.Join(e.StateDir(), previewDir)))
	dir := view.Dir(e.StateDir())
	stray, err := strayViews(dir, func() []*Lease { return Leases(e) })
	if err != nil {
		failures = append(failures, errs.With("looking for views", dir, err))
	}
	for _, at := range stray { // no agent's; perhaps a person's
		failures = append(failures, view.Sweep(ctx, e, filepath.Base(at)))
	}
	return released, errors.Join(failures...)
}

// strayViews returns the views, host directories that show agents their sandboxes, in dir that belong to none
// of leases, the files that tie sandboxes to agents. It reads the directory before the leases: another
// session's lease is saved before its view is made, so a view that was found has its lease by then.
func strayViews(dir string, leases func() []*Lease) (stray []string, err error) {
	entries, err := os.ReadDir(dir)
	if len(entries) == 0 {
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	leased := map[string]bool{}
	for _, l := range leases() {
		leased[filepath.Base(l.View)] = true
	}
	for _, entry := range entries {
		if !leased[entry.Name()] {
			stray = append(stray, filepath.Join(dir, entry.Name()))
		}
	}
	return stray, err
}

// release ends an agent's use of a sandbox, to which the lease l ties it: it closes the view, the host
// directory that shows the sandbox, and removes the sandbox if nothing was changed in it and nothing runs in
// it. Otherwise the sandbox stays, with an ended lease.
func release(ctx context.Context, e *engine.Engine, l *Lease) error {
	if err := view.Close(ctx, e, l.view()); err != nil {
		return err
	}
	removed, err := removeUnchanged(ctx, e, l.Sandbox, view.IdleTime)
	if removed || errors.Is(err, errs.ErrNotFound) {
		return nil
	}
	if err != nil && !errors.Is(err, errs.ErrBusy) {
		return err
	}
	return l.update(ctx, e, func(l *Lease) { l.Ended = true })
}

// removeUnchanged removes a sandbox if it has no change, neither now nor in a snapshot: after an undo, later
// snapshots still have some. removed is false for one with changes. It waits at most for patience until
// processes that are about to end have ended. Errors: errs.ErrBusy if processes continue to run, and the
// sandbox stays; errs.ErrNotFound.
func removeUnchanged(ctx context.Context, e *engine.Engine, sandbox string, patience time.Duration) (removed bool, err error) {
	rec, err := e.Catalog().Get(sandbox)
	if err != nil {
		return false, err
	}
	// A sandbox with changes, the usual one, needs no wait for its processes.
	if changed, err := everChanged(ctx, e, rec); err != nil || changed {
		return false, err
	}
	const op = "removing"
	if err := e.Reconcile.RefuseUnfinished(op, sandbox, ""); err != nil {
		return false, err
	}
	h, err := holdIdle(ctx, e, sandbox, op, patience)
	if err != nil {
		return false, err
	}
	defer h.Release()
	// Until the lock is released nothing can start in it and change a file.
	if changed, err := everChanged(ctx, e, h.Record); err != nil || changed {
		return false, err
	}
	err = e.Sandboxes.Remove(ctx, h)
	return err == nil, err
}

// everChanged reports whether an agent's sandbox, or a snapshot of it, differs from its base. Otherwise the
// sandbox can be removed. Cost: a comparison for each.
func everChanged(ctx context.Context, e *engine.Engine, rec *catalog.Record) (bool, error) {
	states := []string{""}
	for _, s := range slices.Backward(rec.Snapshots) { // the newest has most
		states = append(states, s.Name)
	}
	for _, state := range states {
		c, err := e.Compare.ChangesAt(ctx, rec, "", state, nil)
		if err != nil {
			return false, err
		}
		if count(c) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// changes returns in how many paths an agent's sandbox differs from its base.
func changes(ctx context.Context, e *engine.Engine, sandbox string) (int, error) {
	c, err := e.Compare.Diff(ctx, sandbox, "", "")
	if err != nil {
		return 0, err
	}
	return count(c), nil
}

// count returns the number of changes of an agent's sandbox in the list c, and closes c.
func count(c *compare.Changes) int {
	defer c.Close()
	c.FindCommits() // the files of a repository that cannot be read stay in the list
	return c.Len()
}

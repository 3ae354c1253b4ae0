package agenthook

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/isolate/hostview"
)

// Reap removes what agents left behind whose processes have ended: views, also of a process that was killed, and
// sandboxes without a change. Sandboxes with changes stay, for the person to review. It returns the number of
// sandboxes that it released. Cost: reading the record of each sandbox.
func Reap(ctx context.Context, e *engine.Engine) (released int, err error) {
	var failures []error
	leased := map[string]bool{}
	for _, l := range Leases(e) {
		leased[filepath.Base(l.View)] = true
		if l.Ended || proc.Alive(l.Owner) {
			continue
		}
		if err := release(ctx, e, l); err != nil {
			failures = append(failures, err)
			continue
		}
		released++
	}
	dir := ViewsDir(e.StateDir())
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		failures = append(failures, errs.With("looking for views", dir, err))
	}
	for _, entry := range entries {
		if !leased[entry.Name()] { // its sandbox is gone
			failures = append(failures, hostview.Unmount(ctx, filepath.Join(dir, entry.Name())))
			hostview.RemoveEmpty(filepath.Join(dir, entry.Name()))
		}
	}
	return released, errors.Join(failures...)
}

// release ends an agent's use of a sandbox: its view, and the sandbox too if nothing was changed in it.
func release(ctx context.Context, e *engine.Engine, l *Lease) error {
	if err := closeView(ctx, e, l); err != nil {
		return err
	}
	n, err := changes(ctx, e, l.Sandbox)
	if err != nil {
		return err
	}
	if n > 0 {
		return l.update(ctx, e, func(l *Lease) { l.Ended = true })
	}
	if err := e.Remove(ctx, l.Sandbox); err != nil && !errors.Is(err, errs.ErrNotFound) {
		return err
	}
	return nil
}

// changes counts the changes of a sandbox.
func changes(ctx context.Context, e *engine.Engine, sandbox string) (int, error) {
	c, err := e.Compare.Diff(ctx, sandbox, "", "")
	if err != nil {
		return 0, err
	}
	defer c.Close()
	c.FindCommits() // the files of a repository that cannot be read stay in the list
	return c.Len(), nil
}

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
// sandboxes and views that it removed. Cost: reading one directory, where there is nothing to do.
func Reap(ctx context.Context, e *engine.Engine) (removed int, err error) {
	dir := ViewsDir(e.StateDir())
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, errs.With("looking for views", dir, err)
	}
	var failures []error
	for _, entry := range entries {
		l, err := LeaseOf(e, entry.Name())
		switch {
		case err == nil && l == nil: // the sandbox is gone
			err = hostview.Unmount(ctx, filepath.Join(dir, entry.Name()))
		case err == nil && proc.Alive(l.Owner):
			continue
		case err == nil:
			err = release(ctx, e, l)
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		removed++
	}
	return removed, errors.Join(failures...)
}

// release ends an agent's use of a sandbox: its view, and the sandbox too if nothing was changed in it.
func release(ctx context.Context, e *engine.Engine, l *Lease) error {
	if err := closeView(ctx, e, l); err != nil {
		return err
	}
	n, err := changes(ctx, e, l.Sandbox)
	if err != nil || n > 0 {
		return err
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

package selftest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
)

// tempWorkspace makes a temporary directory for the workspace of a test's sandbox, and returns its path after symbolic
// links.
func tempWorkspace() (string, error) {
	dir, err := os.MkdirTemp("", "snapfs-prove-")
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// approvalTrial returns the test of approvals. In a workspace of its own the probe makes files that run by themselves,
// a link that leads out, and a pipe in place of a file. The boundary holds if a promotion is refused until each of
// them is approved. Nothing is promoted.
func approvalTrial() trial {
	const name = "approval"
	var workspace string
	t := trial{probe: name, args: []string{"."}, prepare: func(req *hostfs.Request) (func(), error) {
		dir, err := tempWorkspace()
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, prove.ReplacedByPipe), []byte(name), 0o600); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		workspace, req.Workspace, req.Backend, req.Policy.Data = dir, dir, "", nil // those of the request may not hold there
		return func() { os.RemoveAll(dir) }, nil                                   //nolint:errcheck // it is a temporary directory
	}}
	t.judge = func(r prove.Report, promoted error) prove.Report {
		var refused *errs.Error
		var refusal reconcile.Refusal
		if errors.As(promoted, &refused) {
			refusal, _ = refused.Details.(reconcile.Refusal)
		}
		if promoted != nil && len(refusal.NeedsApproval) == 0 {
			return prove.Untried(name, []string{workspace}, promoted)
		}
		free := slices.DeleteFunc(prove.CarriedPaths(), func(path string) bool {
			return slices.ContainsFunc(refusal.NeedsApproval, func(a reconcile.ApprovalPath) bool {
				return hostfs.Within(filepath.Join(workspace, path), a.Path)
			})
		})
		if len(free) > 0 {
			r.Happened = "promoted without approval: " + strings.Join(free, ", ")
			return r
		}
		r.Held, r.Happened = true, "each of them needs approval"
		return r
	}
	return t
}

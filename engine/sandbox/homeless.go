package sandbox

import (
	"context"
	"errors"
	"os"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// WorkspaceMissing returns an error of kind ErrNotFound if the workspace of a sandbox does not exist on the
// host any more, else nil. op is the operation that the error names.
func WorkspaceMissing(op string, rec *catalog.Record) error {
	if _, err := os.Lstat(rec.Workspace); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return &errs.Error{
		Op: op, Path: rec.Name, Kind: errs.ErrNotFound,
		Err: errors.New("its workspace " + pathlist.Printable(rec.Workspace) + " is not there any more: it was removed or renamed, or its disk is not mounted"),
		Hints: []string{
			"mkdir -p " + errs.Quoted(rec.Workspace) + "   # or bring it back, as it was",
			"snapfs diff " + rec.Name + "   # what the sandbox holds of it",
		},
	}
}

// ReportMissingWorkspace reports a notice if the workspace of a sandbox does not exist on the host any more,
// for an operation op that works without it.
func (sb *Store) ReportMissingWorkspace(op string, rec *catalog.Record) {
	var refused *errs.Error
	if errors.As(WorkspaceMissing(op, rec), &refused) {
		sb.notice(refused.Error() + " (mkdir -p " + pathlist.Printable(rec.Workspace) + ", or bring it back)")
	}
}

// ExplainMissingWorkspace replaces err, the error of starting command in the sandbox called name, by
// [WorkspaceMissing] if that is the cause. It returns other errors unchanged.
func (sb *Store) ExplainMissingWorkspace(ctx context.Context, err error, name string, command isolate.Command) error {
	if !errors.Is(errs.KindOf(err), errs.ErrNotFound) || ctx.Err() != nil {
		return err
	}
	rec, rerr := sb.cat.Get(name)
	if rerr != nil || !hostfs.Within(command.Dir, rec.Workspace) {
		return err
	}
	if why := WorkspaceMissing("entering", rec); why != nil {
		return why
	}
	return err
}

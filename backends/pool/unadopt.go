//go:build linux

package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Unadopt moves the workspace tree, which [Pool.Adopt] moved onto the pool, back to its former filesystem. It
// calls progress now and then while it copies. The pool keeps its copy, as after an import, because existing
// sandboxes need it. Errors: ErrNotFound (not adopted), ErrBusy (a process uses it), ErrNoSpace,
// ErrInterrupted. After an error the workspace is still on the pool.
func (p *Pool) Unadopt(ctx context.Context, tree string, progress func(Progress)) (Report, error) {
	unlock, err := p.lockTree(tree)
	if err != nil {
		return Report{}, failed("returning", p.Name, tree, err)
	}
	defer unlock()
	r, err := p.record(tree)
	if err == nil && r.State != adopted {
		err = os.ErrNotExist
	}
	if err != nil {
		return Report{}, failed("returning", p.Name, tree, err)
	}
	report, err := p.bringBack(ctx, r, progress)
	return report, failed("returning", p.Name, tree, err)
}

func (p *Pool) bringBack(ctx context.Context, r record, progress func(Progress)) (Report, error) {
	incoming := r.Path + incomingSuffix
	if err := p.markPending(key(r.Path)); err != nil {
		return Report{}, err
	}
	r.State = leaving
	if err := p.saveRecord(r); err != nil {
		return Report{}, err
	}
	report, err := p.copyBack(ctx, r, incoming, progress)
	if err != nil {
		return report, errors.Join(err, p.undoUnadopt(r))
	}
	r.State = leftOff
	if err := p.saveRecord(r); err != nil {
		return report, errors.Join(err, p.undoUnadopt(r))
	}
	if err := p.finishUnadopt(ctx, r); err != nil {
		return report, err
	}
	return report, p.clearPending(key(r.Path))
}

// copyBack copies the workspace from the pool to the directory incoming: most of it while it is in use, and the
// rest after it has unmounted the workspace.
func (p *Pool) copyBack(ctx context.Context, r record, incoming string, progress func(Progress)) (Report, error) {
	if err := os.RemoveAll(incoming); err != nil {
		return Report{}, err
	}
	if err := fault.Point(ctx, "make the directory to return to"); err != nil {
		return Report{}, err
	}
	if err := os.Mkdir(incoming, 0o700); err != nil {
		return Report{}, err
	}
	s := syncer{progress: progress}
	if err := s.between(ctx, p.tree(r.Path), incoming); err != nil {
		return s.report, err
	}
	if err := fault.Point(ctx, "unmount the workspace"); err != nil {
		return s.report, err
	}
	if p.bound(r.Path) {
		if err := unix.Unmount(r.Path, unix.UMOUNT_NOFOLLOW); err == unix.EBUSY {
			return s.report, busy("a process uses the workspace", "fuser -vm "+errs.Quoted(r.Path))
		} else if err != nil {
			return s.report, err
		}
	}
	old, err := parseManifest(ctx, s.blocks)
	if err != nil {
		return s.report, err
	}
	last := syncer{old: old}
	if err := last.between(ctx, p.tree(r.Path), incoming); err != nil {
		return s.report, err
	}
	return s.report, vfs.SyncFSOf(incoming)
}

// undoUnadopt undoes an interrupted Unadopt: it deletes the incomplete copy outside the pool, records the
// workspace as adopted, and mounts it again.
func (p *Pool) undoUnadopt(r record) error {
	if err := os.RemoveAll(r.Path + incomingSuffix); err != nil {
		return err
	}
	r.State = adopted
	return errors.Join(p.saveRecord(r), p.bind(r.Path))
}

// finishUnadopt does the last step of moving a workspace off the pool, or completes it after a kill: it
// renames the complete copy to the path of the workspace, and records that the pool has only a copy.
func (p *Pool) finishUnadopt(ctx context.Context, r record) error {
	incoming := r.Path + incomingSuffix
	if _, err := os.Lstat(incoming); err == nil {
		if err := fault.Point(ctx, "rename the copy into place"); err != nil {
			return err
		}
		if err := clearPlace(r.Path); err != nil {
			return err
		}
		if err := vfs.RenameNew(incoming, r.Path); err != nil {
			return err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// The manifest describes the files of the original.
	if err := os.Remove(filepath.Join(p.home(r.Path), "manifest")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	r.State, r.Original = imported, ""
	return p.saveRecord(r)
}

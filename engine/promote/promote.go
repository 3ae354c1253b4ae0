package promote

import (
	"context"
	"os"
	"time"

	"github.com/snapfs/snapfs/engine/promote/journalfile"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Target is the real directory that a promotion changes, and the state directory with the promotion's
// journal.
type Target struct {
	// Root is the tree's root, open for reading.
	Root *os.File
	// Path is the absolute path of the root. Recover opens the tree by it.
	Path string
	// StateDir holds the journals, and is created if missing. One promotion at a time
	// runs on a state directory.
	StateDir string
}

// A Base describes the state that the changes of a promotion start from. With it, Apply finds out whether a
// real file has drifted.
type Base struct {
	// Taken is the time of the base, see [snapshot.Snapshot].
	Taken time.Time
	// Frozen is set if Change.Old describes the tree at Taken. Otherwise it describes the real
	// tree at the time of the comparison, and only change times reveal changes since Taken.
	Frozen bool
	// Root is the base's own tree, open, if it is readable, or nil. A file with a later change
	// time but equal metadata is then compared by content; without Root it counts as drifted.
	Root *os.File
	// Known has the stamps of paths that earlier promotions of the same sandbox left
	// (Result.Stamps): they have not drifted. Later stamps replace earlier ones.
	Known map[string]Stamp
}

// A Stamp is an inode number and a change time. It identifies a state of a real file: each change gives another stamp. The
// zero Stamp means that there is no file.
type Stamp struct {
	Ino   uint64
	CTime time.Time
}

// Options are the options of [Apply], which promotes changes: the user's approvals, and whether an undo must
// be possible.
type Options struct {
	Base  Base
	Allow approval.Allow
	// Sandbox is the sandbox that made the changes; [Recovery] reports it.
	Sandbox string
	// KeepUndo retains the old versions beside the target for [Undo], until [History]
	// newer promotions exist or [Forget] removes them.
	KeepUndo bool
	// Temporary, with KeepUndo, leaves the promotion out of the history and retains it until
	// Undo or Forget, for a caller that has more steps before the promotion is final.
	Temporary bool
	// Internal are paths that are not counted, because a person does not know them.
	Internal map[string]bool
	// Group is shared by the promotions of one request, or "".
	Group string
}

// A Result describes which changes [Apply] promoted, and which paths it did not need to change.
type Result struct {
	// ID names the promotion; "" if there was nothing to do.
	ID string
	// Applied is the number of changes made, as [diff.Count] counts them.
	Applied int
	// Already lists the paths that already had the wanted state.
	Already []string
	// Skipped lists sockets, which only their server can create.
	Skipped []string
	// Stamps has the stamps of all changed paths, or of all restored ones after an error;
	// for [Base.Known].
	Stamps map[string]Stamp
}

// A Drift is a path that cannot be promoted because the real tree changed there since the base.
type Drift struct {
	Path string
	// Why is the reason, to be printed after "PATH: ".
	Why string
}

// Check returns the paths of the changes at which the real tree drifted. It changes nothing.
// Cost: a statx and the attributes of each path; reads content only if nothing else decides.
// Errors: ErrDenied, ErrInterrupted, ErrCorrupt.
func Check(ctx context.Context, t Target, from Source, changes []diff.Change, base Base) ([]Drift, error) {
	p, err := plan(ctx, t, from, changes, base)
	if err != nil {
		return nil, err
	}
	p.real.Close()
	return p.drifts, nil
}

// Apply applies changes, in the order of package diff, to the target: all or none. It skips
// paths that already have the wanted state, so it may be repeated.
//
// Cost: a copy of each new file (a reflink where the filesystem supports it), 10 to 50 µs for
// each change, five syncs, and on btrfs one more for the sandbox's writes. After an error the
// target is unchanged except for change times. If even the revert fails, the error says so,
// and Recover continues it. Errors: ErrDrifted and ErrConflict (hard links, a sandbox that
// changes meanwhile) name the paths; ErrDenied, ErrReadOnly, ErrNoSpace, ErrBusy (another
// promotion runs), ErrInterrupted.
func Apply(ctx context.Context, t Target, from Source, changes []diff.Change, o Options) (Result, error) {
	lock, err := journalfile.Lock(t.StateDir, true)
	if err != nil {
		return Result{}, fail(t.Path, err)
	}
	defer vfs.Unlock(lock)
	p, err := plan(ctx, t, from, changes, o.Base)
	if err != nil {
		return Result{}, fail(t.Path, err)
	}
	defer p.real.Close()
	result := Result{Already: p.already, Skipped: p.skipped}
	if err := p.refuse(o.Allow); err != nil || len(p.ops) == 0 {
		return result, err
	}
	w := newWork(t, from, p, o)
	defer w.close()
	if err = w.run(ctx); err != nil {
		err = w.revert(ctx, err)
		result.Stamps = w.oldStamps(&w.real)
		return result, fail(t.Path, err)
	}
	result.ID, result.Applied, result.Stamps = w.id, w.count, w.stamps()
	w.complete(ctx, result.Stamps)
	return result, nil
}

// counted returns how many of a promotion's steps the user sees in the result: all but those at the paths
// internal, files of snapfs that a person does not know, and those that only set a directory's time.
func counted(steps []diff.Change, internal map[string]bool) int {
	n := 0
	for i := range steps {
		if !steps[i].TimeOnly() && !internal[steps[i].Path] {
			n++
		}
	}
	return n
}

// refuse returns the first reason not to carry out the promotion, or nil: drift, a missing approval,
// separated hard links, or missing permissions.
func (p *planner) refuse(allow approval.Allow) error {
	if len(p.drifts) > 0 {
		return drifted(p.t.Path, p.drifts)
	}
	if err := p.refuseUnapproved(allow); err != nil {
		return err
	}
	if p.linked {
		if err := p.refuseLinks(); err != nil {
			return err
		}
	}
	if err := p.refuseRights(); err != nil {
		return err
	}
	return refused(&p.denied, p.t.Path, errs.ErrDenied)
}

// Package promote carries changes out on a real tree: all of them or none.
//
// # How
//
// Nothing of the target is touched until every new file lies complete beside
// it. [Apply]
//
//  1. looks at each path that is to change, and refuses where the real tree has
//     moved on since the sandbox was forked ([Check]), and what runs by itself
//     later ([approval.Reason]), until it is allowed;
//  2. builds what is new in a private directory on the target's own filesystem,
//     with all metadata;
//  3. writes down, in a journal, what it will move and which inodes it expects,
//     and waits for the disk to have both;
//  4. moves: a changed file is exchanged with its new version, what is new is
//     renamed in, what is deleted is renamed out, a directory with all that lies
//     in it by one call. What an exchange displaced is private from then on, so
//     comparing it with what was expected is a compare-and-swap without a race;
//  5. changes metadata of what stays in place, directories last;
//  6. waits for the disk, looks once more at everything displaced, and writes
//     that it is done. Only then the old files are dropped.
//
// A failure before the end takes back all of it, in reverse. After a crash
// [Recover] does the same, deciding each step by where the inodes are, or only
// cleans up where the end was reached.
//
// # What it promises
//
// No symbolic link of the target is followed, and the target is not left: each
// directory is opened beneath its root with openat2(2). Nothing is ever run.
// What a program with the file open writes between the exchange and the last
// look is noticed, and everything taken back; a write after the last look goes
// to the old file, as with every program that saves by renaming.
//
// # What a reader sees
//
// A reader that knows nothing of the journal sees, at every path and at every
// instant, the old file or the new one, whole: never half of one, and never
// nothing where there was something and will be something. While 4 and 5 run
// (some 10 to 50 µs a change) one path may be new already and another still
// old. That nobody takes this for a result:
//
//   - all that is new waits, complete and on the disk, before the first path
//     changes, so the time in between is that of the renames alone;
//   - as long as it lasts, and after a crash until Recover has ended it, the
//     stage .snapfs-apply-ID lies beside the target (or in it, where the
//     directory above is of another filesystem or not ours), and the journal in
//     the state directory: who finds no ID.journal and no ID.undoing there has
//     a target that is wholly old or wholly new;
//   - a stage without a journal is never left: the disk has its removal before
//     that of the journal. One that is kept for an undo has an ID.undo.
//
// After a power cut the same holds of what the disks have, in whatever order
// they were written, target and state directory on one of them or on two.
//
// # Where renames have no flags
//
// ZFS before 2.2 and some others know neither RENAME_EXCHANGE nor RENAME_NOREPLACE. There
// each move is made of link(2), rename(2) and unlink(2), see flagless.go: still all or
// nothing, undone and completed as elsewhere, with two promises that are weaker. A directory
// that takes a file's place, or a file a directory's, or one directory another's, is nothing
// for an instant, and after a power cut in it until Recover; and a file that another program
// puts in place by rename(2) in the microseconds between the last look and the move is lost.
//
// File attributes of chattr(1) are not carried. Where a name of a hard-linked
// file lies outside the changes, exchanging it would part the names: refused.
package promote

import (
	"context"
	"os"
	"time"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Target is the real tree that changes are carried out on.
type Target struct {
	// Root is its root, open for reading.
	Root *os.File
	// Path is where the root is: absolute. Recover finds it again by it.
	Path string
	// StateDir holds the journal; it is made where it is missing. One promotion
	// at a time runs on a state directory.
	StateDir string
}

// A Base is what the changes are the difference to.
type Base struct {
	// Taken is the instant the base stands for, see [snapshot.Snapshot].
	Taken time.Time
	// Frozen: Change.Old shows the tree as it was at Taken. Otherwise it shows
	// the real tree as it was when it was compared, and only change times tell
	// what has moved since Taken.
	Frozen bool
	// Root is the base's own tree, open, where there is one to read: a file that
	// looks as it did but whose change time is later is then compared by
	// content. Without it such a file has drifted. May be nil.
	Root *os.File
	// Known are the stamps of what an earlier promotion of the same sandbox put
	// or left where it is (Result.Stamps): it has not drifted. Later stamps
	// replace earlier ones of the same path.
	Known map[string]Stamp
}

// A Stamp identifies a state of a real file. Only a change makes another. The
// zero Stamp is that of nothing.
type Stamp struct {
	Ino   uint64
	CTime time.Time
}

// Options say how changes are carried out.
type Options struct {
	Base  Base
	Allow approval.Allow
	// Sandbox is who the changes are of; a [Recovery] names it again.
	Sandbox string
	// KeepUndo keeps what was displaced, beside the target, so that [Undo] can
	// bring it back, until [History] others are newer or [Forget] drops it.
	KeepUndo bool
	// Passing, with KeepUndo: it is no part of the history and kept until it is
	// undone or forgotten, by a caller with more to do before it is certain.
	Passing bool
	// Group is what several promotions of one request share, or "".
	Group string
}

// A Result says what Apply did.
type Result struct {
	// ID names this promotion; "" when there was nothing to do.
	ID string
	// Applied is the number of changes carried out, as [diff.Count] counts them.
	Applied int
	// Already are the paths that were on the real tree as they should be.
	Already []string
	// Skipped are sockets, which nothing but their server can make.
	Skipped []string
	// Stamps are those of all paths that were put in place, or back in place
	// after a failure; to be kept for [Base.Known].
	Stamps map[string]Stamp
}

// A Step is one change with what the real tree holds at its path.
type Step struct {
	Change diff.Change
	// Expect is what was found there, nil for nothing.
	Expect *diff.Node
}

// A Drift is a place where the real tree has moved on.
type Drift struct {
	Path string
	// Why completes "PATH: ".
	Why string
}

// Check says what of the real tree has moved on in the way of the changes. It
// touches nothing. Cost: a statx and a look at the attributes for each change;
// content only where nothing else tells.
// Errors: ErrDenied, ErrInterrupted, ErrCorrupt.
func Check(ctx context.Context, t Target, from Source, changes []diff.Change, base Base) ([]Drift, error) {
	p, err := plan(ctx, t, from, changes, base)
	p.close()
	return p.drifts, err
}

// Plan is Check, with the steps that remain to be made.
func Plan(ctx context.Context, t Target, from Source, changes []diff.Change, base Base) ([]Step, []Drift, error) {
	p, err := plan(ctx, t, from, changes, base)
	p.close()
	return p.steps, p.drifts, err
}

// Apply brings changes, in the order of package diff, from where their new
// versions lie to the target: wholly, or not at all. A path that is there already as it
// should be is left alone. Repeating it is harmless.
//
// Cost: a copy of each new file (shared blocks where the filesystem can), 10 to
// 50 µs for each change, five waits for the disk, and on btrfs one for what the
// sandbox wrote. After an error the target is
// as it was but for change times; where even that could not be brought about,
// the error says so, and Recover goes on with it.
// Errors: ErrDrifted and ErrConflict (hard links, a sandbox that changes
// meanwhile) name the paths; ErrDenied, ErrReadOnly, ErrNoSpace, ErrBusy
// (another promotion runs), ErrInterrupted.
func Apply(ctx context.Context, t Target, from Source, changes []diff.Change, o Options) (Result, error) {
	lock, err := lockState(t.StateDir, true)
	if err != nil {
		return Result{}, fail(t.Path, err)
	}
	defer vfs.Unlock(lock)
	p, err := plan(ctx, t, from, changes, o.Base)
	defer p.close()
	if err != nil {
		return Result{}, fail(t.Path, err)
	}
	result := Result{Already: p.already, Skipped: p.skipped}
	if err := p.refuse(o.Allow); err != nil || len(p.ops) == 0 {
		return result, err
	}
	w := newWork(t, from, p)
	w.describe(o, counted(p.steps))
	defer w.close()
	if err = w.run(ctx); err != nil {
		err = w.takeBack(ctx, err)
		result.Stamps = w.oldStamps(&w.real)
		return result, fail(t.Path, err)
	}
	result.ID, result.Applied, result.Stamps = w.id, w.count, w.stamps()
	w.end(ctx, result.Stamps)
	return result, nil
}

// counted is how many of the steps a person is told of.
func counted(steps []Step) int {
	n := 0
	for i := range steps {
		if !steps[i].Change.Echo() {
			n++
		}
	}
	return n
}

// refuse says why the plan may not be carried out.
func (p *planner) refuse(allow approval.Allow) error {
	if len(p.drifts) > 0 {
		return drifted(p.t.Path, p.drifts)
	}
	for _, check := range []func() error{
		func() error { return p.refuseUnapproved(allow) }, p.refuseLinks, p.refuseRights,
		func() error { return refused(&p.barred, p.t.Path, errs.ErrDenied) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

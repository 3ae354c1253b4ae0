package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/internal/units"
)

// Snapshot takes a snapshot of a sandbox's present files under the name mark; "" chooses a name. It freezes
// running processes meanwhile, so that all trees are captured at one instant. Atomic: after an error there is
// no such snapshot. Errors: errs.ErrNotFound, ErrExists (the snapshot's name), ErrNoSpace.
func (e *Engine) Snapshot(ctx context.Context, name, mark string) (catalog.NamedSnapshot, error) {
	h, mark, err := e.holdForSnapshot(ctx, name, mark)
	if err != nil {
		return catalog.NamedSnapshot{}, err
	}
	defer func() { h.Release(); e.Baseline.Record(ctx, h.Record) }()
	return e.KeyPoints.TakeNamed(ctx, h, e.Supervise.SealAll, mark, (*catalog.Locked).SaveReserving)
}

// Checkpoint takes a snapshot of a sandbox's present files under the name mark, and calls listed while it has the
// sandbox's lock. Of a running sandbox, it returns when the processes are frozen, and the supervisor takes the snapshot
// afterwards. taken waits for that, see [supervise.Manager.HandOver]; if it is not nil, the caller calls it, also after
// an error. Checkpoint does not wait for a commit of the file system: a power loss within the next seconds may lose the
// snapshot, as if it had never been taken. No end of a process loses it. Errors: those of Snapshot, supervise.ErrSlow,
// and that of listed, after which the snapshot stays.
func (e *Engine) Checkpoint(ctx context.Context, name, mark string, listed func() error) (taken func(), err error) {
	h, mark, err := e.holdForSnapshot(ctx, name, mark)
	if err != nil {
		return nil, err
	}
	defer h.Release()
	taken, err = e.Supervise.HandOver(ctx, h, mark)
	if err == nil && taken == nil {
		defer func() { h.Release(); e.Baseline.RecordOrdered(ctx, h.Record) }()
		_, err = e.KeyPoints.TakeNamed(ctx, h, e.Supervise.SealAll, mark, (*catalog.Locked).SaveReservingOrdered)
	}
	if err != nil {
		return nil, err
	}
	return taken, listed()
}

// holdForSnapshot locks a sandbox of which a snapshot called mark is to be taken, and returns that name, or a free one
// for "". Errors: also errs.ErrExists (the snapshot's name).
func (e *Engine) holdForSnapshot(ctx context.Context, name, mark string) (*catalog.Locked, string, error) {
	h, err := e.Supervise.Hold(ctx, name, "naming a state of")
	if err != nil {
		return nil, "", err
	}
	if mark, err = sandbox.NewSnapshotName(h.Record, mark); err != nil {
		h.Release()
	}
	return h, mark, err
}

// DropSnapshots removes the named snapshots marks of a sandbox: their names at once, their space later. It
// leaves the snapshot that the sandbox's files last started from, and ignores names that do not exist. Forks
// made from a removed snapshot stay. Atomic and repeatable. Errors: errs.ErrNotFound (the sandbox).
func (e *Engine) DropSnapshots(ctx context.Context, name string, marks []string) error {
	h, err := e.Supervise.Hold(ctx, name, "removing states of")
	if err != nil {
		return err
	}
	defer h.Release()
	parents := map[string]string{}
	left := make([]catalog.NamedSnapshot, 0, len(h.Snapshots))
	for _, m := range h.Snapshots {
		if m.Name != h.At && slices.Contains(marks, m.Name) {
			parents[m.Name] = m.Parent
			continue
		}
		for parent, dropped := parents[m.Parent]; dropped; parent, dropped = parents[m.Parent] {
			m.Parent = parent
		}
		left = append(left, m)
	}
	if len(parents) == 0 {
		return nil
	}
	err = e.Sandboxes.Changing(ctx, h, func() error {
		h.Snapshots = left
		if err := h.Save(); err != nil {
			return err
		}
		return e.Sandboxes.Tidy(ctx, h.Record)
	})
	h.Release()
	if err != nil {
		return err
	}
	return e.Sandboxes.SweepLater(ctx)
}

// Rollback returns a sandbox's files to the named snapshot mark, or with "" to its base. Other snapshots
// stay. A snapshot from before a refresh also restores the base of that time. Atomic. Changes since the last
// snapshot are lost: take a snapshot first. Errors: errs.ErrNotFound; ErrBusy while processes run.
func (e *Engine) Rollback(ctx context.Context, name, mark string) error {
	h, err := e.Supervise.Hold(ctx, name, "rolling back")
	if err != nil {
		return err
	}
	defer h.Release()
	if err := e.Supervise.MustBeIdle(ctx, h, "rolling back"); err != nil {
		return e.hintLive(ctx, h.Record, mark, err)
	}
	if _, err := sandbox.SnapshotIDs(h.Record, mark); err != nil {
		return err
	}
	e.KeyPoints.Take(ctx, h, e.Supervise.SealAll, catalog.Why{Point: catalog.AtRollback, When: keypoint.Before})
	ids, err := sandbox.SnapshotIDs(h.Record, mark)
	if err != nil {
		return err // the retention rule removed it just now
	}
	var at []int // indexes of present trees: an unmounted disk cannot be rolled back
	var trees []catalog.Tree
	var from []snapshot.ID
	var old, next []snapshot.ForkID
	for i, t := range h.Trees {
		if !hostfs.Vanished(t, h.Workspace) {
			at, trees, from = append(at, i), append(trees, t), append(from, ids[i])
			old, next = append(old, t.Fork), append(next, h.NewFork())
		}
	}
	if err := e.witness(events.SandboxRollingBack, h.Record, events.Data{Name: mark}); err != nil {
		return err
	}
	err = e.Sandboxes.Changing(ctx, h, func() error {
		if err := e.Sandboxes.ForkAll(ctx, h.Record, trees, from, next); err != nil {
			return err
		}
		for i, tree := range at {
			h.Trees[tree].Fork = next[i]
		}
		h.At = mark
		m, _ := h.Snapshot(mark)
		if m.Base != nil {
			h.SetBase(m.Base)
		}
		if err := e.Reconcile.RewindBaseline(ctx, h.Record, m); err != nil {
			return err
		}
		if err := h.Save(); err != nil {
			return err
		}
		e.announce(events.SandboxRolledBack, h.Record, events.Data{Name: mark})
		return e.Sandboxes.RemoveForks(ctx, trees, old)
	})
	h.Release()
	if err != nil {
		return err
	}
	return e.Sandboxes.SweepLater(ctx)
}

// Fork makes the sandbox name with the files of the sandbox from, as they are at the named snapshot mark or,
// with "", now. It freezes the processes of from while it captures the files; the fork has no processes. With
// "", the captured state becomes the fork's first snapshot, named "origin".
//
// The fork has the same base, so its changes are relative to the same state of the machine. It has the same
// limits, with a lifetime that starts anew. A fork of an expired sandbox, or of one that nobody has claimed
// after a run, has no lifetime, so that saved work is not removed. The fork shares the request budget of from:
// the requests of either count against it.
func (e *Engine) Fork(ctx context.Context, from, mark, name string) (*catalog.Record, error) {
	return e.ForkAdmitted(ctx, from, mark, name, supervise.Admission{})
}

// ForkAdmitted does the same as [Engine.Fork], but first waits for an admission slot, the permission to make
// a sandbox on a busy host; when says for how long. Errors: also ErrBusy (the host has no capacity).
func (e *Engine) ForkAdmitted(ctx context.Context, from, mark, name string, when supervise.Admission) (*catalog.Record, error) {
	if name != "" {
		if err := catalog.CheckName(name); err != nil {
			return nil, err
		}
	}
	rec, err := e.cat.Get(from)
	if err != nil {
		return nil, err
	}
	if err := e.Supervise.NameFits(name, when); err != nil {
		return nil, err
	}
	place, err := e.Supervise.Admit(ctx, rec.Policy.Limits, when)
	if err != nil {
		return nil, err
	}
	defer e.Supervise.ReleaseSlot(place) // nothing runs in it yet
	rec, intent, err := e.fork(ctx, from, mark, name, forkOptions{})
	if err == nil {
		e.Sandboxes.End(intent)
	}
	return rec, err
}

// forkOptions are how a fork of a sandbox differs from one that [Engine.Fork] makes. [Engine.RunFork] sets
// them.
type forkOptions struct {
	// Ephemeral is set for a fork that lives only as long as the process that makes it.
	Ephemeral bool
	// Bound, unless nil, changes the policy that the fork has from its sandbox.
	Bound func(*catalog.Policy)
}

// fork makes a fork as [Engine.Fork] does, unless o says otherwise, and returns its record and the intent,
// the note by which the next command completes or undoes the work of a killed process. The caller ends the
// intent. After an error no fork is left, or the next command removes it.
func (e *Engine) fork(ctx context.Context, from, mark, name string, o forkOptions) (_ *catalog.Record, _ *catalog.Intent, err error) {
	h, err := e.Supervise.Hold(ctx, from, "forking")
	if err != nil {
		return nil, nil, err
	}
	defer h.Release()
	sources, err := sandbox.SnapshotIDs(h.Record, mark)
	if err != nil {
		return nil, nil, err
	}
	policy, over := h.Policy, h.Ended != nil || sandbox.Expired(h.Record, catalog.Now())
	if over || h.OwnRemoval() {
		policy.Limits.RemoveAfter, policy.Limits.KeepEnd = 0, false
	}
	if o.Bound != nil {
		o.Bound(&policy)
	}
	rec, intent, err := e.Sandboxes.Intend(hostfs.Request{Name: name, Workspace: h.Workspace, Policy: policy}, o.Ephemeral)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			e.Sandboxes.EndIfGone(intent, rec, err)
		}
	}()
	rec.Origin, rec.Trees, rec.Refreshed, rec.Untouched = from, slices.Clone(h.Trees), h.Refreshed, h.Untouched
	origin, _ := h.Snapshot(mark)
	if rec.OriginSnapshot = origin.Identity(); origin.Base != nil {
		rec.SetBase(origin.Base)
		rec.Past = nil // the fork never had another base
	}
	for i := range rec.Trees {
		rec.Trees[i].Fork = rec.NewFork()
	}
	if mark == "" {
		sources = sandbox.NewSnapshotIDs(rec)
		rec.Snapshots, rec.At = []catalog.NamedSnapshot{{Name: "origin", Taken: time.Now(), IDs: sources, MountPoints: hostfs.PlacesAt(h.Record)}}, "origin"
	}
	if !h.Lent {
		h.Lent = true
		if err := h.Save(); err != nil {
			return nil, nil, err
		}
	}
	if err := e.Sandboxes.Register(ctx, rec, func() error {
		if mark == "" {
			if err := e.Supervise.SealAll(ctx, h, sources); err != nil {
				return err
			}
		}
		return errors.Join(e.inherit(ctx, h.Record, rec, origin), e.Sandboxes.ForkAll(ctx, rec, rec.Trees, sources, sandbox.ForksOf(rec)))
	}, nil); err != nil {
		return nil, nil, err
	}
	if !o.Ephemeral && over && policy.Limits != h.Policy.Limits {
		e.notice(rec.Name + " stays until it is removed: remove-after " + units.FormatDuration(h.Policy.Limits.RemoveAfter) + " was over for " + from)
	}
	return rec, intent, nil
}

// inherit gives to, a fork of the sandbox from, the ledger of its budget, which both share, the fingerprints of
// labelled files, and the baseline of from: the recorded originals with which its changes are compared, to which each
// promotion adds the promoted states. origin is the named snapshot of which the fork is made, or zero for the present
// files. Of a snapshot the fork does not get states that were promoted after it: its older files would look like
// changes that revert the promotion.
func (e *Engine) inherit(ctx context.Context, from, to *catalog.Record, origin catalog.NamedSnapshot) error {
	err := errors.Join(
		egress.ShareBudget(to, e.cat.Path(from.Name), e.cat.Path(to.Name)),
		leak.InheritLabels(e.cat.Path(from.Name), e.cat.Path(to.Name)),
	)
	if err == nil {
		err = e.Baseline.Inherit(from, to)
	}
	if err == nil && origin.Name != "" {
		err = e.Reconcile.RewindBaseline(ctx, to, origin)
	}
	return err
}

// Package keypoint takes snapshots of a sandbox automatically at the key points that its policy lists: before
// and after a command, when a limit was hit, and so on. It also removes old ones, by the policy's retention
// rule.
package keypoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
)

// A Taker takes the automatic snapshots of sandboxes, those at key points, and removes the oldest of them. It
// is safe for concurrent use, by any number of processes.
type Taker struct {
	// Catalog and the others are those of the state directory.
	Catalog   *catalog.Catalog
	Host      *hostfs.Host
	Sandboxes *sandbox.Store
	Compare   *compare.Comparer
	// Events gets the events about snapshots, and Notice texts for the user.
	Events *events.Log
	Notice func(string)
}

// A Seal is a function that the caller passes in. It stores the present state of every tree of a sandbox, at
// one instant, as the immutable snapshots ids, and freezes the sandbox's processes for that if necessary.
type Seal func(ctx context.Context, h *catalog.Locked, ids []snapshot.ID) error

// Take takes an automatic snapshot of a locked sandbox if its policy asks for one at the key point why.Point,
// such as the start of a command, and something has changed since the last snapshot. A snapshot that
// [Taker.Postpone] has postponed is taken first. A failure is a notice and never an error: the caller
// continues. Cost: nothing if the policy asks for no snapshots.
func (k *Taker) Take(ctx context.Context, h *catalog.Locked, seal Seal, why catalog.Why) {
	if err := k.Try(ctx, h, seal, why); err != nil {
		k.Notice(err.Error())
	}
}

// Try takes an automatic snapshot as [Taker.Take] does, but returns a failure as an error instead of a
// notice.
func (k *Taker) Try(ctx context.Context, h *catalog.Locked, seal Seal, why catalog.Why) error {
	if h.Policy.KeyPoints == nil || h.Ephemeral {
		return nil
	}
	k.Settle(ctx, h, seal)
	if !h.Policy.KeyPoints.Has(why.Point) {
		return nil
	}
	return Failed(h.Name, why, k.take(ctx, h, seal, why))
}

// Failed returns the error that says that no snapshot of the sandbox called name was taken at the key point
// why, because of err, or that it was taken and old ones stay; nil if err is nil.
func Failed(name string, why catalog.Why, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errOldStay):
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("no snapshot of %s %s: %w", name, Text(why), err)
}

// errOldStay means that an automatic snapshot was taken, and that older ones could not be measured or removed.
var errOldStay = errors.New("old snapshots stay")

// Settle takes the snapshot of a locked sandbox that [Taker.Postpone] has postponed, if there is one. A
// failure is a notice.
func (k *Taker) Settle(ctx context.Context, h *catalog.Locked, seal Seal) {
	if h.Policy.KeyPoints == nil || h.Ephemeral {
		return
	}
	data, err := os.ReadFile(k.postponed(h.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var why catalog.Why
	if err == nil && exactjson.Decode(data, &why) != nil {
		why = catalog.Why{Point: catalog.AtExec, When: After} // a crash cut it short
	}
	if err == nil {
		err = k.take(ctx, h, seal, why)
	}
	if err == nil || errors.Is(err, errOldStay) {
		// Another command may have replaced the note meanwhile. That note stays, because the files that the command
		// wrote may be newer than the snapshot.
		err = errors.Join(err, catalog.RemoveFileIf(k.postponed(h.Name), data))
	}
	if err = Failed(h.Name, why, err); err != nil {
		k.Notice(err.Error())
	}
}

// Values of [catalog.Why.When]: whether an automatic snapshot was taken before or after the operation at its
// key point.
const (
	Before = "before"
	After  = "after"
)

// HasPostponed reports whether the sandbox called name has an automatic snapshot due that [Taker.Postpone] has put off
// until its lock is free. If it has none, a record that is read afterwards lists the snapshot.
func (k *Taker) HasPostponed(name string) bool {
	_, err := os.Lstat(k.postponed(name))
	return err == nil
}

// Postpone stores that an automatic snapshot of the present state of the sandbox called name is due, for a
// caller that does not have the sandbox's lock. The next process that takes the lock takes the snapshot
// before the state changes, by [Taker.Settle] or [Taker.Take]. The note survives the death of this process. Of several
// that are stored at once the last one stays, since all stand for the present state.
func (k *Taker) Postpone(name string, why catalog.Why) error {
	data, err := exactjson.Encode(why)
	if err == nil {
		err = catalog.ReplaceFile(k.postponed(name), append(data, '\n'), false)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the sandbox has been removed
	}
	return errs.With("postponing a snapshot of", name, err)
}

func (k *Taker) postponed(name string) string { return filepath.Join(k.Catalog.Path(name), "keypoint") }

// Text returns, in a few words for a person, at which key point an automatic snapshot was taken.
func Text(why catalog.Why) string {
	text := strings.TrimSpace(why.When + " " + why.Point)
	if why.Limit != "" {
		text += " " + why.Limit
	}
	if why.Host != "" {
		text += " " + why.Host
	}
	if why.Status != nil {
		text += fmt.Sprintf(" (exit %d)", *why.Status)
	}
	if len(why.Command) > 0 {
		quoted := make([]string, len(why.Command))
		for i, arg := range why.Command {
			quoted[i] = errs.ShellQuoted(arg)
		}
		text += ": " + strings.Join(quoted, " ")
	}
	return text
}

// take takes an automatic snapshot of a locked sandbox unless nothing has changed since the last one, and
// then removes the old ones that the retention rule no longer allows. Error: also errOldStay.
func (k *Taker) take(ctx context.Context, h *catalog.Locked, seal Seal, why catalog.Why) error {
	ctx = context.WithoutCancel(ctx)
	if !k.changed(ctx, h.Record) {
		return nil
	}
	m := catalog.NamedSnapshot{
		Name: freeName(h.Record), Parent: h.At, Taken: time.Now(), IDs: sandbox.TakeSnapshotIDs(h),
		MountPoints: hostfs.PlacesAt(h.Record), Why: &why,
	}
	why.InUse = h.Supervisor != nil
	var lost, unmeasured error
	err := k.Sandboxes.Changing(ctx, h, func() error {
		if err := seal(ctx, h, m.IDs); err != nil {
			return err
		}
		h.Snapshots, h.At = append(h.Snapshots, m), m.Name
		var old []catalog.NamedSnapshot
		old, unmeasured = k.prune(ctx, h.Record, m.Taken)
		if err := h.SaveReserving(len(h.Trees)); err != nil {
			return err
		}
		lost = k.remove(ctx, h, old)
		return nil
	})
	if err != nil {
		return err
	}
	k.Events.Append(events.Event{Type: events.SnapshotCreated, Subject: h.Name, SandboxID: h.ID, Data: eventOf(m)})
	if err := errors.Join(unmeasured, lost); err != nil {
		return fmt.Errorf("%w: %w", errOldStay, err)
	}
	return nil
}

// eventOf returns the data of the event with which the event log announces the automatic snapshot m.
func eventOf(m catalog.NamedSnapshot) events.Data {
	w := m.Why
	return events.Data{Name: m.Name, Reason: strings.TrimSpace(w.When + " " + w.Point), Command: w.Command, Status: w.Status, Limit: w.Limit, Host: w.Host}
}

// changed reports whether a sandbox has changed since its last snapshot, or since its base if it has none. It
// relies on the backend's list of changed paths. While a sandbox is in use, and after a snapshot of one in
// use, a backend may list paths that have not changed; then changed compares these files, too, unless the backend
// knows more ([snapshot.SealComparer]).
func (k *Taker) changed(ctx context.Context, rec *catalog.Record) bool {
	if rec.Untouched {
		return false
	}
	last, _ := rec.Snapshot(rec.At)
	inUse := rec.Supervisor != nil || last.Why != nil && last.Why.InUse
	ids, err := sandbox.SnapshotIDs(rec, rec.At)
	if err != nil {
		return true
	}
	listed, equal := map[string][]snapshot.Candidate{}, 0
	for i, t := range rec.Trees {
		b, err := k.Host.BackendOf(ctx, t)
		if err != nil {
			return true
		}
		paths, answer := candidates(ctx, b, ids[i], t.Fork, inUse)
		if answer == differs {
			return true
		}
		if answer == lists {
			listed[t.Path] = paths
		}
		if answer == lists && len(paths) == 0 {
			equal++
		}
	}
	if equal == len(rec.Trees) {
		return false
	}
	changes, err := k.Compare.ChangesAt(ctx, rec, rec.At, "", listed)
	if err != nil {
		return true
	}
	defer changes.Close()
	return changes.Len() > 0
}

// An answer is what a backend knows about the changes of a fork since a snapshot.
type answer int

const (
	unlisted answer = iota // nothing
	lists                  // the paths that may have changed
	differs                // that something has changed, so that a snapshot would differ from the last one
)

// candidates returns the paths at which a fork may differ from its last snapshot, or [differs] as soon as one of
// them is certain. Without inUse each listed path is certain but the root, which the real tree may have changed.
func candidates(ctx context.Context, b snapshot.Backend, last snapshot.ID, fork snapshot.ForkID, inUse bool) (paths []snapshot.Candidate, _ answer) {
	if c, ok := b.(snapshot.SealComparer); ok && inUse {
		if changed, known := c.ChangedSinceSeal(ctx, last, fork); known && changed {
			return nil, differs
		} else if known {
			return nil, lists
		}
	}
	lister, ok := b.(snapshot.ChangeLister)
	if !ok {
		return nil, unlisted
	}
	for c, err := range lister.ListChanges(ctx, last, fork) {
		if err != nil {
			return nil, unlisted
		}
		if c.Path != "." && !inUse {
			return nil, differs
		}
		paths = append(paths, c)
	}
	return paths, lists
}

// freeName returns the name of a sandbox's next automatic snapshot: k1, k2 and so on. A number is not used
// again as long as the newest snapshot exists.
func freeName(rec *catalog.Record) string {
	next := 1
	for _, m := range rec.Snapshots {
		var n int
		if _, err := fmt.Sscanf(m.Name, "k%d", &n); err == nil && n >= next {
			next = n + 1
		}
	}
	return fmt.Sprintf("k%d", next)
}

// AfterCommand returns the reason of the automatic snapshot after a command: why, with the name of the limit
// that the command hit, if hit is not nil. The key point of that reason is then "a limit was hit" instead of
// "after a command", if points, those of the sandbox's policy, include it.
func AfterCommand(points *catalog.KeyPoints, why catalog.Why, hit *catalog.LimitHit) catalog.Why {
	if hit == nil {
		return why
	}
	why.Limit = hit.Limit
	if points.Has(catalog.AtLimit) {
		why.Point = catalog.AtLimit
	}
	return why
}

// NotePromotion stores, at the snapshot of a locked sandbox's present state, that the promotion id used it,
// so that the retention rule never removes that snapshot. h may be nil, for a sandbox without snapshots.
func (k *Taker) NotePromotion(h *catalog.Locked, id string) {
	if h == nil || !h.Policy.KeyPoints.Has(catalog.AtPromotion) {
		return
	}
	for i := range h.Snapshots {
		if m := &h.Snapshots[i]; m.Name == h.At && m.Why != nil {
			why := *m.Why
			why.Promotion = id
			m.Why = &why
			if err := h.Save(); err != nil {
				k.Notice("the promotion " + id + " is not recorded at the snapshot " + m.Name + ": " + err.Error())
			}
		}
	}
}

// Line returns the snapshots that led to the present state of a sandbox, oldest first: each is the parent of
// the next. It leaves out states that a rollback has abandoned.
func Line(rec *catalog.Record) (line []catalog.NamedSnapshot) {
	for at := rec.At; at != "" && len(line) < len(rec.Snapshots); {
		m, ok := rec.Snapshot(at)
		if !ok {
			break
		}
		line, at = append(line, m), m.Parent
	}
	slices.Reverse(line)
	return line
}

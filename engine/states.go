package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/units"
)

// Snapshot gives the present state of a sandbox a name ("" makes one). A
// running sandbox's processes stand still meanwhile, so that what is kept is
// one moment of all its trees. Atomic: after an error there is no such state.
// Errors: errs.ErrNotFound, ErrExists (the state's name), ErrNoSpace.
func (e *Engine) Snapshot(ctx context.Context, name, mark string) (catalog.Mark, error) {
	h, err := e.hold(ctx, name, "naming a state of")
	if err != nil {
		return catalog.Mark{}, err
	}
	defer h.Release()
	if mark == "" {
		mark = freshMark(h.Record)
	}
	if err := catalog.CheckName(mark); err != nil {
		return catalog.Mark{}, err
	}
	if _, taken := h.Mark(mark); taken {
		return catalog.Mark{}, &errs.Error{
			Op: "naming a state of " + name, Path: mark, Kind: errs.ErrExists,
			Err: errors.New("the name is taken"), Hints: []string{"snapfs show " + name},
		}
	}
	m := catalog.Mark{Name: mark, Parent: h.At, Taken: time.Now(), IDs: number(h.Record), Places: placesAt(h.Record)}
	defer func() { h.Release(); e.keepBase(ctx, h.Record) }()
	return m, e.changing(ctx, h, func() error {
		if err := e.sealAll(ctx, h, m.IDs); err != nil {
			return err
		}
		h.Marks, h.At = append(h.Marks, m), mark
		return h.Save()
	})
}

// changing saves the numbers that were taken and runs change. When that fails,
// the record on disk says what is so, and the rest is removed; where not even
// that works, or the process is killed, the next command does it.
func (e *Engine) changing(ctx context.Context, h *catalog.Held, change func() error) error {
	intent, err := e.cat.Begin(catalog.Changing, h.Name, h.ID)
	if err != nil {
		return err
	}
	if err = h.Save(); err == nil {
		err = change()
	}
	if err != nil {
		terr := h.Reload()
		if terr == nil {
			terr = e.tidy(context.WithoutCancel(ctx), h.Record)
		}
		if terr != nil {
			return errors.Join(err, terr)
		}
	}
	e.end(intent)
	return err
}

// number takes a snapshot's number for each tree.
func number(r *catalog.Record) (ids []snapshot.ID) {
	for range r.Trees {
		ids = append(ids, r.NewSnapshot())
	}
	return ids
}

func freshMark(r *catalog.Record) string {
	for i := len(r.Marks) + 1; ; i++ {
		name := fmt.Sprintf("s%d", i)
		if _, taken := r.Mark(name); !taken {
			return name
		}
	}
}

// sealAll seals every tree of a sandbox at one moment. After an error some of
// the snapshots may be there.
func (e *Engine) sealAll(ctx context.Context, h *catalog.Held, ids []snapshot.ID) error {
	use, thaw, err := e.freeze(ctx, h)
	if err != nil {
		return err
	}
	defer thaw()
	for i, t := range h.Trees {
		b, err := e.backendOf(ctx, t)
		if err == nil {
			_, err = b.Seal(ctx, t.Fork, ids[i], use)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// freeze makes a sandbox's processes stand still until thaw. A keeper that is
// about to end has none left.
func (e *Engine) freeze(ctx context.Context, h *catalog.Held) (use snapshot.Use, thaw func(), err error) {
	_, use, thaw, err = e.freezeTold(ctx, h)
	return use, thaw, err
}

// freezeTold is freeze, and answers with what the keeper has told, too.
func (e *Engine) freezeTold(ctx context.Context, h *catalog.Held) (t tell, use snapshot.Use, thaw func(), err error) {
	if err := fault.Point(ctx, "freeze its processes"); err != nil {
		return t, 0, nil, err
	}
	conn, err := e.dial(ctx, h.Record)
	if err != nil {
		return t, 0, nil, err
	}
	if conn != nil {
		thaw = func() { letGo(context.WithoutCancel(ctx), conn, h.Name) }
		t, err = askFreeze(ctx, conn, h.Name)
		if err == nil && t.Frozen {
			return t, snapshot.InUse, thaw, nil
		}
		if errors.Is(err, errSilent) {
			return t, 0, nil, errors.Join(err, conn.Close())
		}
		thaw()
	}
	if conn == nil && h.Keeper == nil {
		return t, snapshot.Idle, func() {}, nil
	}
	if conn == nil || t.Gone || errors.Is(err, errLeft) {
		return t, snapshot.Idle, func() {}, e.settle(ctx, h)
	}
	if err == nil {
		err = t.refused()
	}
	return t, 0, nil, fmt.Errorf("freezing %s: %w", h.Name, err)
}

// letGo has the keeper thaw the sandbox, and waits until it has: whoever comes
// next finds it running. A keeper that has gone needs no telling, and one that stands still
// thaws it when it goes on.
func letGo(ctx context.Context, conn *fdsock.Conn, name string) {
	if conn.Send([]byte("{}")) == nil {
		_ = await(ctx, conn, name)
	}
	conn.Close() //nolint:errcheck // all was said
}

func askFreeze(ctx context.Context, conn *fdsock.Conn, name string) (tell, error) {
	msg, err := json.Marshal(ask{Freeze: true})
	if err == nil {
		err = conn.Send(msg)
	}
	if err != nil && !hungUp(err) {
		return tell{}, err
	}
	t, _, err := hearIn(ctx, conn, name)
	return t, err
}

// Rollback makes a sandbox's files what they were at a named state, or, with
// "", at its base. Other states stay, so one can go back and forth; one from
// before a refresh brings the base of then along. Atomic. The
// sandbox's own unnamed changes are lost: take a snapshot first.
// Errors: errs.ErrNotFound; ErrBusy while processes run in it.
func (e *Engine) Rollback(ctx context.Context, name, mark string) error {
	h, err := e.hold(ctx, name, "rolling back")
	if err != nil {
		return err
	}
	defer h.Release()
	if err := e.mustBeIdle(ctx, h, "rolling back"); err != nil {
		return e.orLive(ctx, h.Record, mark, err)
	}
	ids, err := idsAt(h.Record, mark)
	if err != nil {
		return err
	}
	var at []int // of the trees that are there: a disk that has gone has no state to go back to
	var trees []catalog.Tree
	var from []snapshot.ID
	var old, next []snapshot.ForkID
	for i, t := range h.Trees {
		if !vanished(t, h.Workspace) {
			at, trees, from = append(at, i), append(trees, t), append(from, ids[i])
			old, next = append(old, t.Fork), append(next, h.NewFork())
		}
	}
	err = e.changing(ctx, h, func() error {
		if err := e.forkAll(ctx, h.Record, trees, from, next); err != nil {
			return err
		}
		for i, tree := range at {
			h.Trees[tree].Fork = next[i]
		}
		h.At = mark
		if m, _ := h.Mark(mark); m.Base != nil {
			h.SetBase(m.Base)
		}
		if err := h.Save(); err != nil {
			return err
		}
		return errors.Join(e.wentBack(ctx, h.Record), e.removeForks(ctx, trees, old))
	})
	h.Release()
	if err != nil {
		return err
	}
	return e.sweepLater(ctx)
}

// idsAt gives the snapshots of a named state, or of the base.
func idsAt(r *catalog.Record, mark string) ([]snapshot.ID, error) {
	if mark == "" {
		var ids []snapshot.ID
		for _, t := range r.Trees {
			ids = append(ids, t.Base)
		}
		return ids, nil
	}
	m, ok := r.Mark(mark)
	if !ok {
		return nil, &errs.Error{
			Op: "looking for a state of " + r.Name, Path: mark, Kind: errs.ErrNotFound,
			Err: errors.New("there is none of this name"), Hints: []string{"snapfs show " + r.Name},
		}
	}
	return m.IDs, nil
}

// forkAll forks a snapshot of each tree of a sandbox, and holds the forks to its limits.
func (e *Engine) forkAll(ctx context.Context, rec *catalog.Record, trees []catalog.Tree, from []snapshot.ID, ids []snapshot.ForkID) error {
	for i, t := range trees {
		b, err := e.backendOf(ctx, t)
		if err == nil {
			_, err = b.Fork(ctx, from[i], ids[i])
		}
		if err == nil && limitsDisk(rec.Policy.Limits) {
			err = limitFork(ctx, b, ids[i], rec.ID, rec.Policy.Limits)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) removeForks(ctx context.Context, trees []catalog.Tree, ids []snapshot.ForkID) error {
	var failures []error
	for i, t := range trees {
		b, err := e.backendOf(ctx, t)
		if err == nil {
			err = b.RemoveFork(ctx, ids[i])
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// Fork makes a new sandbox whose files are those of another one as it is now,
// or at one of its named states. The running processes of the other stand
// still for that instant; the fork has none. Where the state was unnamed, it is
// the fork's first one, "origin". The fork's base stays that of the other, so
// that what it has changed is compared with what the real machine was. It has the limits
// of the other, and its life begins anew; one of a sandbox that has come to its end has no
// end of its own, so that what was saved does not go after all.
func (e *Engine) Fork(ctx context.Context, from, mark, name string) (*catalog.Record, error) {
	return e.ForkAdmitted(ctx, from, mark, name, Admission{})
}

// ForkAdmitted is Fork that waits for room as when says. Errors: admission.ErrNoRoom too.
func (e *Engine) ForkAdmitted(ctx context.Context, from, mark, name string, when Admission) (*catalog.Record, error) {
	rec, err := e.cat.Get(from)
	if err != nil {
		return nil, err
	}
	if err := e.nameFits(name, when); err != nil {
		return nil, err
	}
	place, err := e.admit(ctx, rec.Policy.Limits, when)
	if err != nil {
		return nil, err
	}
	defer e.giveBack(place) // nothing runs in it yet
	return e.fork(ctx, from, mark, name)
}

func (e *Engine) fork(ctx context.Context, from, mark, name string) (_ *catalog.Record, err error) {
	if name != "" {
		if err := catalog.CheckName(name); err != nil {
			return nil, err
		}
	}
	h, err := e.hold(ctx, from, "forking")
	if err != nil {
		return nil, err
	}
	defer h.Release()
	sources, err := idsAt(h.Record, mark)
	if err != nil {
		return nil, err
	}
	policy := h.Policy
	if h.Ended != nil || over(h.Record, catalog.Now()) {
		policy.Limits.RemoveAfter, policy.Limits.KeepEnd = 0, false
	}
	rec, intent, err := e.intend(Request{Name: name, Workspace: h.Workspace, Policy: policy}, false)
	if err != nil {
		return nil, err
	}
	defer func() { e.endIfGone(intent, rec, err) }()
	rec.Origin, rec.Trees, rec.Refreshed = from, slices.Clone(h.Trees), h.Refreshed
	if m, _ := h.Mark(mark); m.Base != nil {
		rec.SetBase(m.Base)
		rec.Past = nil // it never had the other
	}
	for i := range rec.Trees {
		rec.Trees[i].Fork = rec.NewFork()
	}
	if mark == "" {
		sources = number(rec)
		rec.Marks, rec.At = []catalog.Mark{{Name: "origin", Taken: time.Now(), IDs: sources, Places: placesAt(h.Record)}}, "origin"
	}
	if !h.Lent {
		h.Lent = true
		if err := h.Save(); err != nil {
			return nil, err
		}
	}
	if err := e.register(ctx, rec, func() error {
		if mark == "" {
			if err := e.sealAll(ctx, h, sources); err != nil {
				return err
			}
		}
		return errors.Join(e.inherit(h.Record, rec), e.forkAll(ctx, rec, rec.Trees, sources, forksOf(rec)))
	}, nil); err != nil {
		return nil, err
	}
	if policy.Limits != h.Policy.Limits {
		e.notice(rec.Name + " stays until it is removed: remove-after " + units.FormatDuration(h.Policy.Limits.RemoveAfter) + " was over for " + from)
	}
	return rec, nil
}

func forksOf(rec *catalog.Record) (ids []snapshot.ForkID) {
	for _, t := range rec.Trees {
		ids = append(ids, t.Fork)
	}
	return ids
}

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// Remove ends a sandbox's processes and removes it: its name at once, its
// space later. Safe at any moment and, but for ErrNotFound, repeatable. One
// whose record cannot be read goes too. ErrBusy: it belongs to a command that
// is at work, or a promotion of it is unfinished.
func (e *Engine) Remove(ctx context.Context, name string) error {
	if err := e.refuseUnfinished("removing", name, ""); err != nil {
		return err
	}
	err := e.Stop(ctx, name)
	if errors.Is(err, errs.ErrCorrupt) || errors.Is(err, errs.ErrNotFound) && e.cat.Claimed(name) {
		return e.removeUnread(ctx, name)
	}
	if err != nil {
		return err
	}
	h, err := e.hold(ctx, name, "removing")
	if err != nil {
		return err
	}
	defer h.Release()
	return e.remove(ctx, h, func() error {
		_, err := e.sendHome(ctx, h.Record, ask{Stop: true}) // a keeper that came in since
		return err
	})
}

// remove takes a sandbox away whose lock is held, once last has succeeded.
func (e *Engine) remove(ctx context.Context, h *catalog.Held, last func() error) error {
	intent, err := e.cat.Begin(catalog.Removing, h.Name, h.ID)
	if errors.Is(err, errs.ErrNoSpace) {
		intent, err = new(catalog.Intent), nil // this is how one makes room
	}
	if err != nil {
		return err
	}
	if err = last(); err == nil {
		err = e.throwAway(ctx, h)
	}
	e.end(intent) // what is left is in the trash
	return err
}

// endIfGone ends the intent of a sandbox that was to be discarded. Where it is
// still there, the intent stays, for the next command.
func (e *Engine) endIfGone(i *catalog.Intent, rec *catalog.Record, err error) {
	if err != nil {
		if r, err := e.cat.Get(rec.Name); err == nil && r.ID == rec.ID {
			return
		}
	}
	e.end(i)
}

// removeUnread removes a sandbox whose record cannot be read. A collection then
// finds its trees, because nothing owns them.
func (e *Engine) removeUnread(ctx context.Context, name string) error {
	if _, err := e.sendHome(ctx, &catalog.Record{Name: name}, ask{Stop: true}); err != nil {
		return err
	}
	if err := e.cat.Drop(name); err != nil {
		return err
	}
	return e.sweepLater(ctx)
}

// hold locks a sandbox to do something to it. One that belongs to a command
// that is at work is refused.
func (e *Engine) hold(ctx context.Context, name, op string) (*catalog.Held, error) {
	h, err := e.holdAny(ctx, name)
	if err == nil && (h.Ephemeral || h.State != catalog.Ready) {
		h.Release()
		return nil, &errs.Error{Op: op, Path: name, Kind: errs.ErrBusy, Err: errors.New("it belongs to a command that is at work")}
	}
	return h, err
}

// holdAny locks a sandbox, whoever it belongs to, and ends what was begun to be taken back: half of it is
// nothing to be carried anywhere.
func (e *Engine) holdAny(ctx context.Context, name string) (*catalog.Held, error) {
	h, err := e.cat.Hold(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := e.endReturn(ctx, h); err != nil {
		h.Release()
		return nil, err
	}
	return h, nil
}

// discard takes a sandbox without processes away, if it is still there.
func (e *Engine) discard(ctx context.Context, rec *catalog.Record) error {
	h, err := e.cat.Hold(ctx, rec.Name)
	if err == nil && h.ID != rec.ID {
		h.Release()
		err = errs.ErrNotFound
	}
	if errors.Is(err, errs.ErrNotFound) {
		return e.reclaim(ctx, rec.ID)
	}
	if err != nil {
		return err
	}
	return e.throwAway(ctx, h)
}

// throwAway takes a sandbox's name, then its trees. The lock is released.
func (e *Engine) throwAway(ctx context.Context, h *catalog.Held) error {
	if err := h.Discard(); err != nil {
		return err
	}
	return e.reclaim(ctx, h.ID)
}

// reclaim gives back the trees of all sandboxes in the trash. What fails stays
// there for the next time, and is an error if it is of the sandbox id: what is
// wrong with others is told by [Engine.Collect].
func (e *Engine) reclaim(ctx context.Context, id string) error {
	found, _ := e.cat.Trash()
	var err error
	for _, d := range found {
		if derr := e.reclaimOne(ctx, d); d.ID == id {
			err = derr
		}
	}
	if len(found) > 0 {
		err = errors.Join(err, e.clean(ctx, found))
	}
	return err
}

func (e *Engine) reclaimOne(ctx context.Context, d catalog.Discarded) error {
	defer d.Release()
	if err := e.removeTrees(ctx, d.Record); err != nil {
		return fmt.Errorf("%s is removed, but not what it holds: %w", d.Name, err)
	}
	return d.Forget()
}

// removeTrees removes every fork and snapshot that was ever numbered for a
// sandbox, but for bases that another may have been given too: those wait for
// [Engine.Collect].
func (e *Engine) removeTrees(ctx context.Context, rec *catalog.Record) error {
	return e.eachPlace(ctx, rec, func(b snapshot.Backend) error { return removeNumbers(ctx, b, rec) })
}

// tidy removes what was numbered for a sandbox and is none of its states.
func (e *Engine) tidy(ctx context.Context, rec *catalog.Record) error {
	ids, forks := map[snapshot.ID]bool{}, map[snapshot.ForkID]bool{}
	for _, t := range rec.Trees {
		ids[t.Base], forks[t.Fork] = true, true
	}
	for _, id := range rec.Past {
		ids[id] = true // a collection finds out whether others have it
	}
	for id := range rec.Bases() {
		ids[id] = true
	}
	for _, m := range rec.Marks {
		for _, id := range m.IDs {
			ids[id] = true
		}
	}
	if rec.Returning != nil {
		for _, id := range rec.Returning.Before {
			ids[id] = true
		}
	}
	err := e.eachPlace(ctx, rec, func(b snapshot.Backend) error {
		var failures []error
		for id, fork := range rec.Numbers() {
			if !forks[fork] {
				failures = append(failures, b.RemoveFork(ctx, fork))
			}
			if !ids[id] {
				failures = append(failures, b.Remove(ctx, id))
			}
		}
		return errors.Join(failures...)
	})
	return errors.Join(err, e.dropBases(rec))
}

// eachPlace opens each place where a sandbox has trees, once.
func (e *Engine) eachPlace(ctx context.Context, rec *catalog.Record, do func(snapshot.Backend) error) error {
	var failures []error
	done := map[string]bool{}
	for _, t := range rec.Trees {
		b, err := e.backendOf(ctx, t)
		if errors.Is(err, errs.ErrNotFound) {
			continue // the filesystem that held it is gone, and the tree with it
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if place := t.Driver + " " + e.apart(t.Driver, b); !done[place] {
			done[place] = true
			failures = append(failures, do(b))
		}
	}
	return errors.Join(failures...)
}

func removeNumbers(ctx context.Context, b snapshot.Backend, rec *catalog.Record) error {
	var failures []error
	shared := rec.Lent || b.Facts().Flushes
	for id, fork := range rec.Numbers() {
		failures = append(failures, b.RemoveFork(ctx, fork))
		if !shared || !rec.HasBase(id) {
			failures = append(failures, b.Remove(ctx, id))
		}
	}
	return errors.Join(failures...)
}

// clean gives the space of removed sandboxes back in the background, where
// there is any: what a backend has put by for the next sandbox costs nothing.
func (e *Engine) clean(ctx context.Context, gone []catalog.Discarded) error {
	for _, d := range gone {
		if len(d.Marks) > 0 || d.Next > 2*len(d.Trees) || d.Lent {
			return e.sweepLater(ctx) // of what it named, something may be shared
		}
		for _, t := range d.Trees {
			b, err := e.backendOf(ctx, t)
			if err != nil {
				continue // its place is gone
			}
			if p, ok := b.(snapshot.Pender); !ok || p.Pending() {
				return e.sweepLater(ctx)
			}
		}
	}
	return nil
}

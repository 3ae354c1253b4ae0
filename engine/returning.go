package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
)

// RollbackLive is [Engine.Rollback] of a sandbox in which processes run: they stand still meanwhile,
// and go on with the files of the state, those that they have open included (see
// [snapshot.Returner]). What they have in memory stays. Errors, beside Rollback's: errs.ErrNotSupported
// (a backend of its trees cannot, or the state is from before a refresh).
func (e *Engine) RollbackLive(ctx context.Context, name, mark string) error {
	h, err := e.hold(ctx, name, "rolling back")
	if err != nil {
		return err
	}
	defer h.Release()
	if err := e.mayReturn(ctx, h.Record, mark); err != nil {
		return err
	}
	h.Returning = &catalog.Returning{Mark: mark, Before: number(h.Record)}
	err = e.changing(ctx, h, func() error {
		told, use, thaw, err := e.freezeTold(ctx, h)
		if err == nil {
			defer thaw()
			err = mayReturnShifted(h.Record, told.Shifted)
		}
		if err == nil {
			err = e.goBack(ctx, h, use)
		}
		if err != nil {
			return errors.Join(err, e.undoReturn(context.WithoutCancel(ctx), h, use, false))
		}
		return errors.Join(e.wentBack(ctx, h.Record), e.tidy(ctx, h.Record))
	})
	h.Release()
	if err != nil {
		return err
	}
	return e.sweepLater(ctx)
}

// mayReturn says why a sandbox cannot be taken back to a mark while something runs in it, or nil.
func (e *Engine) mayReturn(ctx context.Context, rec *catalog.Record, mark string) error {
	if _, err := idsAt(rec, mark); err != nil {
		return err
	}
	if m, _ := rec.Mark(mark); m.Base != nil {
		return cannotReturn(rec, mark, errors.New("it was refreshed since, and what runs in it has files of its base open"))
	}
	all, err := e.returnables(ctx, rec)
	if err != nil {
		return err
	}
	return e.restStill(ctx, rec, mark, all)
}

// A returnable is a tree of a sandbox that can be taken back while it is in use.
type returnable struct {
	snapshot.Backend
	snapshot.Returner
	fork snapshot.ForkID
	at   int // among the sandbox's trees
}

func (e *Engine) returnables(ctx context.Context, rec *catalog.Record) (all []returnable, err error) {
	for i, t := range rec.Trees {
		b, err := e.backendOf(ctx, t)
		if err != nil {
			return nil, err
		}
		if r, ok := b.(snapshot.Returner); ok {
			all = append(all, returnable{b, r, t.Fork, i})
		}
	}
	return all, nil
}

// restStill says which of the other trees is not what it was at a mark, or nil: those stay as
// they are.
func (e *Engine) restStill(ctx context.Context, rec *catalog.Record, mark string, but []returnable) error {
	to, err := idsAt(rec, mark)
	if err != nil {
		return err
	}
	for i, t := range rec.Trees {
		if slices.ContainsFunc(but, func(r returnable) bool { return r.at == i }) {
			continue
		}
		why := errors.New(t.Driver + " cannot take " + t.Path + " back under what runs in it")
		b, err := e.backendOf(ctx, t)
		if err != nil {
			return err
		}
		toucher, ok := b.(snapshot.Toucher)
		if !ok {
			return cannotReturn(rec, mark, why)
		}
		for _, err := range toucher.Touched(ctx, to[i], t.Fork) {
			if err != nil && !errors.Is(err, errs.ErrNotSupported) {
				return err
			}
			return cannotReturn(rec, mark, why)
		}
	}
	return nil
}

func mayReturnShifted(rec *catalog.Record, shifted []string) error {
	if len(shifted) == 0 {
		return nil
	}
	return cannotReturn(rec, rec.Returning.Mark, errors.New("this kernel has no id-mapped mounts of "+shifted[0]+", and the process that shows it keeps what it has read"))
}

func cannotReturn(rec *catalog.Record, mark string, why error) error {
	return &errs.Error{Op: "rolling back", Path: rec.Name, Kind: errs.ErrNotSupported, Err: why, Hints: []string{rollbackOf(rec, mark) + " --stop"}}
}

// rollbackOf is the command that takes a sandbox back to a mark.
func rollbackOf(rec *catalog.Record, mark string) string {
	return strings.TrimSpace("snapfs rollback " + rec.Name + " " + mark)
}

// orLive says of a sandbox in which something runs how it can be taken back all the same.
func (e *Engine) orLive(ctx context.Context, rec *catalog.Record, mark string, err error) error {
	var busy *errs.Error
	if errors.As(err, &busy) && errors.Is(err, errs.ErrBusy) && e.mayReturn(ctx, rec, mark) == nil {
		busy.Hints = append(busy.Hints, rollbackOf(rec, mark)+" --live")
	}
	return err
}

// goBack takes the trees of a sandbox, in which nothing moves, to what its record says that they are
// returning to, and saves that they are there. First what they are is kept, of all of them, for
// undoReturn.
func (e *Engine) goBack(ctx context.Context, h *catalog.Held, use snapshot.Use) error {
	to, err := idsAt(h.Record, h.Returning.Mark)
	if err != nil {
		return err
	}
	all, err := e.returnables(ctx, h.Record)
	if err == nil {
		err = e.restStill(ctx, h.Record, h.Returning.Mark, all)
	}
	for _, t := range all {
		if err == nil {
			_, err = t.Seal(ctx, t.fork, h.Returning.Before[t.at], use)
		}
	}
	if err == nil {
		h.Returning.Kept = true
		err = h.Save()
	}
	for _, t := range all {
		if err == nil {
			err = fault.Point(ctx, "go back")
		}
		if err == nil {
			err = t.Return(ctx, t.fork, to[t.at], use)
		}
		if errors.Is(err, errs.ErrNotSupported) {
			err = cannotReturn(h.Record, h.Returning.Mark, err)
		}
	}
	if err == nil {
		err = fault.Point(ctx, "say that it went back")
	}
	if err != nil {
		return err
	}
	return returned(h, h.Returning.Mark)
}

// endReturn ends what a command that was killed had begun to take back.
func (e *Engine) endReturn(ctx context.Context, h *catalog.Held) error {
	if h.Returning == nil {
		return nil
	}
	use, thaw, err := e.freeze(ctx, h)
	if err != nil {
		return err
	}
	defer thaw()
	return e.undoReturn(ctx, h, use, true)
}

// undoReturn has the trees of a sandbox that has begun to go back hold what they did before; or,
// to finish it, leaves them where all have gone.
func (e *Engine) undoReturn(ctx context.Context, h *catalog.Held, use snapshot.Use, finish bool) error {
	if !h.Returning.Kept {
		return returned(h, h.At)
	}
	all, err := e.returnables(ctx, h.Record)
	if err != nil {
		return err
	}
	var gone []returnable
	for _, t := range all {
		base, err := t.Base(ctx, t.fork)
		if err != nil {
			return err
		}
		if base != h.Returning.Before[t.at] {
			gone = append(gone, t)
		}
	}
	if finish && len(gone) == len(all) {
		return returned(h, h.Returning.Mark)
	}
	for _, t := range gone {
		if err := t.Return(ctx, t.fork, h.Returning.Before[t.at], use); err != nil {
			return err
		}
	}
	return returned(h, h.At)
}

// returned saves that a sandbox is at a mark, and nothing is under way any more.
func returned(h *catalog.Held, at string) error {
	was, before := h.At, h.Returning
	h.At, h.Returning = at, nil
	err := h.Save()
	if err != nil {
		h.At, h.Returning = was, before
	}
	return err
}

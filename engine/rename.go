package engine

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// Rename gives a sandbox another name; everything else about the sandbox stays. If snapfs is killed
// meanwhile, the sandbox has one of the two names. After an error it has its old name.
//
// Errors: ErrExists (the new name is taken), ErrInvalid (the new name), ErrBusy (processes run in the
// sandbox, or a promotion still needs it), ErrNotFound.
func (e *Engine) Rename(ctx context.Context, name, to string) error {
	const op = "renaming"
	if err := catalog.CheckName(to); err != nil {
		return err
	}
	h, err := e.Supervise.Hold(ctx, name, op)
	if err != nil {
		return err
	}
	defer h.Release()
	if err := e.Supervise.MustBeIdle(ctx, h, op); err != nil {
		return err
	}
	wait, err := e.needsPromotion(h.Record)
	if err != nil {
		return err
	}
	if wait {
		return &errs.Error{Op: op, Path: name, Kind: errs.ErrBusy, Err: errors.New("a promotion of it has not ended"), Hints: []string{"snapfs log"}}
	}
	renamed := *h.Record
	renamed.Name = to
	if err := e.cat.NoteEnd(&renamed, catalog.Now()); err != nil { // before the name: a removal that is due must find it
		return err
	}
	old := *h.Record
	if err := h.Rename(to); err != nil {
		return err
	}
	if err := h.Save(); err != nil { // as on a full disk
		return errors.Join(err, h.Rename(old.Name))
	}
	e.announceRename(&old, to)
	return nil
}

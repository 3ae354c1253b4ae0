package supervise

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/supervise/resources"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/undo"
)

type (
	// Usage holds the resource usage of all processes of a sandbox, and how each of its limits is enforced.
	Usage = resources.Usage
	// A HeldLimit reports how one limit of a sandbox is enforced.
	HeldLimit = resources.HeldLimit
)

// UsageOf returns the resource usage of a sandbox, or nil if it is not running. Errors: errs.ErrNotFound; ErrBusy if
// its supervisor does not reply.
func (sv *Manager) UsageOf(ctx context.Context, name string) (*Usage, error) {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return nil, err
	}
	t, err := sv.request(ctx, rec, Request{Usage: true})
	if err != nil || t == nil {
		return nil, err
	}
	return t.Usage, nil
}

// SetLimits applies change to the limits of a sandbox, also for its running processes, and returns the new limits.
// Errors: errs.ErrNotFound, ErrBusy, ErrNotSupported, ErrInvalid; after an error all previous limits apply, the disk
// limit included.
func (sv *Manager) SetLimits(ctx context.Context, name string, change func(*catalog.Limits) error) (_ catalog.Limits, err error) {
	h, err := sv.Hold(ctx, name, "limiting")
	if err != nil {
		return catalog.Limits{}, err
	}
	defer h.Release()
	was, now := h.Policy.Limits, h.Policy.Limits
	if err := change(&now); err != nil || now == was {
		return was, err
	}
	if err := sandbox.RefuseEnded(h.Record); err != nil {
		return was, err
	}
	if err := errors.Join(hostfs.ForProcesses(now).Check(), sandbox.TimesFit(now), refusedBySite(name, h.Policy, now)); err != nil {
		return was, err
	}
	var back undo.Stack
	defer back.UndoInto(&err)
	later := context.WithoutCancel(ctx)
	if err := sv.sandboxes.LimitTrees(ctx, h.Record, was, now); err != nil {
		return was, err
	}
	back.Push("restore the disk limit", func() error { return sv.sandboxes.LimitTrees(later, h.Record, now, was) })
	if err := sv.sandboxes.FitsDisk(h.Record, now); err != nil {
		return was, err
	}
	noted := *h.Record
	noted.RecordAge(catalog.Now())
	noted.Policy.Limits = now
	if err := sv.cat.NoteEnd(&noted, noted.Life.At); err != nil {
		return was, err
	}
	t, err := sv.request(ctx, h.Record, Request{Limits: &now})
	if err != nil {
		return was, err
	}
	back.Push("restore the limits of the running container", func() error { _, err := sv.request(later, h.Record, Request{Limits: &was}); return err })
	if h.Paused = nil; t != nil {
		h.Paused = t.Paused
	}
	if h.Run != nil && now.RemoveAfter != was.RemoveAfter {
		h.Run.Unclaimed = false // somebody has decided how long it stays
	}
	h.Life, h.Policy.Limits = noted.Life, now
	if err := h.Save(); err != nil {
		return was, err
	}
	back.Release()
	return now, nil
}

// setLimits changes the limits of the running sandbox to l for a client. The client saves the new limits when it gets
// the reply. If it cannot get the reply, setLimits restores the previous limits.
func (h *Supervisor) setLimits(client *fdsock.Conn, l catalog.Limits) {
	was, err := h.Resources.Set(context.Background(), l)
	if err != nil {
		send(client, Reply{Refused: refusalOf(err)})
		return
	}
	h.deadlines.set(l)
	if !send(client, Reply{Paused: h.Resources.Paused()}) {
		if _, err := h.Resources.Set(context.Background(), was); err == nil {
			h.deadlines.set(was)
		}
	}
}

// reportUsage sends a client the resource usage of the sandbox, and how each limit is enforced.
func (h *Supervisor) reportUsage(client *fdsock.Conn) {
	usage, err := h.Resources.Usage()
	if err != nil {
		send(client, Reply{Refused: refusalOf(err)})
		return
	}
	send(client, Reply{Usage: usage, Hit: h.Resources.LimitHit()})
}

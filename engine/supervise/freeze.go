package supervise

import (
	"context"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/fdsock"
)

// SealAll takes a snapshot of every tree of a sandbox while its processes are frozen, so that all show the same
// instant. ids holds the new snapshot's id for each tree, in order. After an error some of the snapshots may exist.
func (sv *Manager) SealAll(ctx context.Context, h *catalog.Locked, ids []snapshot.ID) error {
	use, thaw, err := sv.Freeze(ctx, h)
	if err != nil {
		return err
	}
	defer thaw()
	return sv.sealTrees(ctx, h, ids, use)
}

// sealTrees takes a snapshot of every tree of a sandbox as [Manager.SealAll] does. The caller has frozen its processes;
// use says whether there are any.
func (sv *Manager) sealTrees(ctx context.Context, h *catalog.Locked, ids []snapshot.ID, use snapshot.Use) error {
	for i, t := range h.Trees {
		b, err := sv.host.BackendOf(ctx, t)
		if err == nil {
			_, err = b.Seal(ctx, t.Fork, ids[i], use)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Freeze freezes a sandbox's processes until the caller calls thaw. It returns snapshot.InUse, or snapshot.Idle if no
// process is left; then thaw does nothing.
func (sv *Manager) Freeze(ctx context.Context, h *catalog.Locked) (use snapshot.Use, thaw func(), err error) {
	_, use, thaw, err = sv.FreezeWithReply(ctx, h)
	return use, thaw, err
}

// FreezeWithReply freezes a sandbox as [Manager.Freeze] does. The supervisor's reply lists trees served by id mappers.
func (sv *Manager) FreezeWithReply(ctx context.Context, h *catalog.Locked) (t Reply, use snapshot.Use, thaw func(), err error) {
	if err := fault.Point(ctx, "freeze its processes"); err != nil {
		return t, 0, nil, err
	}
	conn, err := sv.Dial(ctx, h.Record)
	if err != nil {
		return t, 0, nil, err
	}
	if conn != nil {
		thaw = func() { releaseFreeze(context.WithoutCancel(ctx), conn, h.Name) }
		t, err = requestFreeze(ctx, conn, h.Name)
		if err == nil && t.Frozen {
			return t, snapshot.InUse, thaw, nil
		}
		if errors.Is(err, ErrSilent) {
			return t, 0, nil, errors.Join(err, conn.Close())
		}
		thaw()
	}
	if conn == nil && h.Supervisor == nil {
		return t, snapshot.Idle, func() {}, nil
	}
	if conn == nil || t.Gone || errors.Is(err, errEnded) {
		return t, snapshot.Idle, func() {}, sv.Sync(ctx, h)
	}
	if err == nil {
		err = t.refusal()
	}
	return t, 0, nil, fmt.Errorf("freezing %s: %w", h.Name, err)
}

// releaseFreeze sends the supervisor on conn the request to thaw the frozen sandbox and waits for it, so that the
// next command finds the sandbox running. A SIGSTOPped supervisor thaws it when it continues.
func releaseFreeze(ctx context.Context, conn *fdsock.Conn, name string) {
	if conn.Send([]byte("{}")) == nil {
		_ = awaitReply(ctx, conn, name)
	}
	conn.Close() //nolint:errcheck // nothing more to send
}

// requestFreeze requests the supervisor to freeze the sandbox until conn closes, and returns the reply.
func requestFreeze(ctx context.Context, conn *fdsock.Conn, name string) (Reply, error) {
	msg, err := exactjson.Encode(Request{Freeze: true})
	if err == nil {
		err = conn.Send(msg)
	}
	if err != nil && !fdsock.HungUp(err) {
		return Reply{}, err
	}
	t, _, err := receiveWithin(ctx, conn, name)
	return t, err
}

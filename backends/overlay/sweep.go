//go:build linux

package overlay

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
)

// Sweep does the background work of this backend, for [snapshot.Backend]: it deletes layers that no record
// names, remains of killed processes, and the trash, merges long chains of layers, and syncs frozen layers.
// It rests for as long as it works. Cost: reading every record with the lock held exclusively.
func (b *backend) Sweep(ctx context.Context) error {
	if store.IsGone(b.store.Dir) {
		return nil
	}
	alive, err := b.store.Collect(ctx, b.projects.FreeOfProject)
	if err == nil {
		err = errors.Join(b.syncFrozen(ctx, alive), b.mergeLong(ctx, alive))
	}
	err = errors.Join(err, b.store.EmptyTrash(ctx))
	if err == nil && b.store.Storage != nil {
		err = b.store.Storage.Swept()
	}
	return fail("sweeping", "", err)
}

// syncFrozen writes those frozen layers to stable storage that were sealed during this boot without a sync. c
// holds the layers in use.
func (b *backend) syncFrozen(ctx context.Context, c *store.LiveLayers) error {
	boot, err := proc.BootID()
	if err != nil {
		return err
	}
	var notes []string
	for _, layer := range c.Frozen() {
		if b.store.Note(layer, "unsettled") == boot {
			notes = append(notes, b.store.LayerPath(layer)+"/unsettled")
		}
	}
	return b.syncAndUnmark(ctx, notes, b.syncLayers)
}

// mergeLong merges the layers of each snapshot that has many, since each layer slows down lookups. c holds
// the layers in use.
func (b *backend) mergeLong(ctx context.Context, c *store.LiveLayers) error {
	for _, chain := range c.Chains {
		chain, mustMerge := b.store.ShortenCached(c, chain)
		if !mustMerge {
			continue
		}
		err := b.compact(ctx, chain)
		c.ForgetMerged(chain[0])
		kind := errs.KindOfFile(err)
		passed := errors.Is(kind, errs.ErrNotFound) || errors.Is(kind, errs.ErrBusy) // the chain was removed, or merged by another process
		if err != nil && !passed {
			return err
		}
	}
	return nil
}

package keypoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// sweepEvery is how many snapshots may be removed before a garbage collection is started to free their disk
// space, which removing alone does not do. A collection started for another reason frees it, too.
const sweepEvery = 16

// prune removes from the record rec the automatic snapshots that are, at the time now, too many or too old by its
// retention rule, and those that hold too much disk space, oldest first, and returns them for the caller to delete.
// It leaves the snapshot from which the sandbox's present files come, one that a promotion used, and one from which
// another sandbox was forked. If the disk space cannot be measured, the error says so, and no snapshot is
// removed for its size.
func (k *Taker) prune(ctx context.Context, rec *catalog.Record, now time.Time) (old []catalog.NamedSnapshot, err error) {
	rule := rec.Policy.KeyPoints
	var automatic []catalog.NamedSnapshot
	for _, m := range rec.Snapshots {
		if m.Why != nil {
			automatic = append(automatic, m)
		}
	}
	var used map[string]bool
	over := 0 // how many automatic snapshots more than the rule allows
	gone, stays := map[string]bool{}, func(m catalog.NamedSnapshot) bool {
		if m.Name == rec.At || m.Why.Point == catalog.AtPromotion || m.Why.Promotion != "" {
			return true
		}
		if used == nil {
			used = k.forked(rec)
		}
		return used[m.Identity()]
	}
	if most := rule.Most(); most > 0 {
		over = len(automatic) - most
	}
	for _, m := range automatic {
		if (over > 0 || rule.KeepFor > 0 && now.Sub(m.Taken) >= rule.KeepFor) && !stays(m) {
			gone[m.Name] = true
			over--
		}
	}
	if rule.KeepSize > 0 {
		err = k.tooLarge(ctx, rec, automatic, gone, stays)
	}
	return unlist(rec, gone), err
}

// unlist removes the snapshots whose names gone has from the record rec, and returns them. The parent of a
// snapshot that stays is then its youngest ancestor that stays.
func unlist(rec *catalog.Record, gone map[string]bool) (old []catalog.NamedSnapshot) {
	parents := map[string]string{}
	left := make([]catalog.NamedSnapshot, 0, len(rec.Snapshots))
	for _, m := range rec.Snapshots {
		if gone[m.Name] {
			parents[m.Name], old = m.Parent, append(old, m)
			continue
		}
		for parent, removed := parents[m.Parent]; removed; parent, removed = parents[m.Parent] {
			m.Parent = parent
		}
		left = append(left, m)
	}
	rec.Snapshots = left
	return old
}

// tooLarge adds to gone the names of the oldest of the snapshots automatic whose removal is necessary so that
// those that are left hold no more disk space by themselves than the retention rule of rec allows. stays
// reports whether a snapshot must not be removed. If the backends cannot measure within [measureTime],
// tooLarge adds none and returns the error.
func (k *Taker) tooLarge(ctx context.Context, rec *catalog.Record, automatic []catalog.NamedSnapshot, gone map[string]bool, stays func(catalog.NamedSnapshot) bool) error {
	var order, must []catalog.NamedSnapshot
	for _, m := range automatic {
		switch {
		case gone[m.Name]:
		case stays(m):
			must = append(must, m)
		default:
			order = append(order, m)
		}
	}
	free := len(order)
	order = append(order, must...)
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	held, err := k.held(ctx, rec, order)
	if err != nil {
		return fmt.Errorf("none was removed for its size, because the sizes are not known: %w", err)
	}
	for i := range free {
		if int64(held[i]) <= rec.Policy.KeyPoints.KeepSize {
			break
		}
		gone[order[i].Name] = true
	}
	return nil
}

// measureTime bounds the time in which the disk space of a sandbox's snapshots is measured after each
// automatic snapshot.
const measureTime = 2 * time.Second

// held returns for each i the bytes of disk space that only the snapshots list[i:] of a sandbox hold: what
// their removal would free after that of list[:i]. Cost: see [snapshot.Meter]. Errors:
// errs.ErrNotSupported if a backend of the sandbox cannot measure it.
func (k *Taker) held(ctx context.Context, rec *catalog.Record, list []catalog.NamedSnapshot) ([]snapshot.Bytes, error) {
	sum := make([]snapshot.Bytes, len(list))
	for i, t := range rec.Trees {
		b, err := k.Host.BackendOf(ctx, t)
		if err != nil {
			return nil, err
		}
		meter, ok := b.(snapshot.Meter)
		if !ok {
			return nil, hostfs.NoMeter(t.Path, t.Driver)
		}
		ids := make([]snapshot.ID, len(list))
		for j, m := range list {
			if i < len(m.IDs) && !rec.HasBase(m.IDs[i]) {
				ids[j] = m.IDs[i]
			}
		}
		held, err := meter.MeasureExclusive(ctx, ids)
		if err != nil {
			return nil, err
		}
		for j := range held {
			sum[j] += held[j]
		}
	}
	return sum, nil
}

// forked returns the identities of those snapshots of a sandbox from which other sandboxes were forked.
func (k *Taker) forked(rec *catalog.Record) map[string]bool {
	used := map[string]bool{}
	if !rec.Lent {
		return used
	}
	records, _ := k.Catalog.List() // one that cannot be read is nobody's fork any more
	for _, r := range records {
		if r.OriginSnapshot != "" {
			used[r.OriginSnapshot] = true
		}
	}
	return used
}

// remove deletes the data of the snapshots old, which the sandbox's record does not list any more. A garbage
// collection deletes later those that it cannot.
func (k *Taker) remove(ctx context.Context, h *catalog.Locked, old []catalog.NamedSnapshot) error {
	var failures []error
	for _, m := range old {
		for i, t := range h.Trees {
			b, err := k.Host.BackendOf(ctx, t)
			if err == nil && i < len(m.IDs) && !h.HasBase(m.IDs[i]) {
				err = b.Remove(ctx, m.IDs[i])
			}
			if !errors.Is(err, errs.ErrNotFound) {
				failures = append(failures, err)
			}
		}
	}
	if n := h.Next / max(1, len(h.Trees)); len(old) > 0 && n%sweepEvery < len(old) {
		failures = append(failures, k.Sandboxes.SweepLater(ctx))
	}
	return errors.Join(failures...)
}

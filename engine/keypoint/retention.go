package keypoint

import (
	"context"
	"errors"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// sweepEvery is how many snapshots may be removed before a garbage collection is started to free their disk
// space, which removing alone does not do. A collection started for another reason frees it, too.
const sweepEvery = 16

// prune removes from the record rec the automatic snapshots that are, at the time now, too many or too old by its
// retention rule, oldest first, and returns them for the caller to delete. It leaves the snapshot from which the
// sandbox's present files come, one that a promotion used, and one from which another sandbox was forked.
func (k *Taker) prune(rec *catalog.Record, now time.Time) (old []catalog.NamedSnapshot) {
	rule := rec.Policy.KeyPoints
	automatic := 0
	for _, m := range rec.Snapshots {
		if m.Why != nil {
			automatic++
		}
	}
	var used map[string]bool
	parents := map[string]string{}
	left := make([]catalog.NamedSnapshot, 0, len(rec.Snapshots))
	for _, m := range rec.Snapshots {
		over := rule.Most() > 0 && automatic > rule.Most() || rule.KeepFor > 0 && now.Sub(m.Taken) >= rule.KeepFor
		if over && m.Why != nil && m.Name != rec.At && m.Why.Point != catalog.AtPromotion && m.Why.Promotion == "" {
			if used == nil {
				used = k.forked(rec)
			}
			if !used[m.Identity()] {
				parents[m.Name], old = m.Parent, append(old, m)
				automatic--
				continue
			}
		}
		for parent, gone := parents[m.Parent]; gone; parent, gone = parents[m.Parent] {
			m.Parent = parent
		}
		left = append(left, m)
	}
	rec.Snapshots = left
	return old
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

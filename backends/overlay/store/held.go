//go:build linux

package store

import (
	"context"

	"golang.org/x/sys/unix"
)

// ExclusiveLayers returns the layers that only the snapshots ids use, each with the index in ids of the last of its
// users. A merged layer counts as used by the users of the layers that it replaces. It reads the records of
// all snapshots and forks with the lock held exclusively, so that it misses no fork that is made meanwhile. Errors:
// ErrCorrupt for an unreadable record, and that of ctx.
func (s *Store) ExclusiveLayers(ctx context.Context, ids []string) (map[string]int, error) {
	if IsGone(s.Dir) {
		return nil, nil
	}
	unlock, err := s.Lock(ctx, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer unlock()
	index := make(map[string]int, len(ids))
	for i, id := range ids {
		index[id] = i
	}
	mine, others := map[string]int{}, map[string]bool{}
	for _, dir := range []string{"snapshots", "forks"} {
		err := s.eachRecord(dir, recordCache{}, true, func(id string, r *Record) {
			i, ours := index[id]
			layers := r.Layers
			if r.Fork {
				ours, layers = false, append([]string{r.Upper}, layers...)
			}
			for _, layer := range layers {
				for ; layer != ""; layer = s.mergedInto(layer) {
					if last, known := mine[layer]; ours && (!known || i > last) {
						mine[layer] = i
					}
					others[layer] = others[layer] || !ours
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	for layer, used := range others {
		if used {
			delete(mine, layer)
		}
	}
	return mine, nil
}

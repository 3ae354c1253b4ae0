package sandbox

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
)

// MakeTemporary prepares the sandbox called name for a use after which this process removes it: it takes no automatic
// snapshots, and is removed at this age even if this process is killed before.
func (sb *Store) MakeTemporary(ctx context.Context, name string, age time.Duration) error {
	h, err := sb.cat.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer h.Release()
	h.Policy.KeyPoints = nil
	now := catalog.Now()
	h.RecordAge(now)
	h.Policy.Limits.RemoveAfter = age
	if err := sb.cat.NoteEnd(h.Record, now); err != nil {
		return err
	}
	return h.Save()
}

package sandbox

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
)

// MakeTemporary lets a sandbox take no snapshots by itself, and has it removed at an age, should this process be killed
// before it removes the sandbox.
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
